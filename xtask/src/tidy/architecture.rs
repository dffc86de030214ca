//! The rule that `ARCHITECTURE.md` mentions every crate.

use super::Finding;
use super::repo::Repo;

const MAP: &str = "ARCHITECTURE.md";

pub(super) fn names_every_crate(repo: &Repo) -> Vec<Finding> {
    let Some(map) = repo.text(MAP) else {
        return vec![Finding::problem(
            MAP,
            None,
            "is missing".to_owned(),
            "write it: the map and the invariants",
        )];
    };
    let unnamed = repo.workspace.members.iter().filter(|member| !names(map, &member.dir));
    let finding = |dir: &str| {
        let what = format!("does not mention `{dir}`");
        Finding::problem(MAP, None, what, "add a line or two: what it is for and what it must not do")
    };
    unnamed.map(|member| finding(&member.dir)).collect()
}

/// Returns true if the map contains `crates/wire`, `wire/` (as in a tree) or `` `wire` ``.
fn names(map: &str, dir: &str) -> bool {
    let folder = dir.rsplit('/').next().unwrap_or(dir);
    let in_name = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    map.match_indices(folder).any(|(at, _)| {
        let (before, after) = (&map[..at], &map[at + folder.len()..]);
        let whole = !before.ends_with(in_name) && !after.starts_with(in_name);
        let quoted = before.ends_with('`') && after.starts_with('`');
        let full = dir != folder && map[..at + folder.len()].ends_with(dir);
        whole && (quoted || full || after.starts_with('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::super::workspace::Package;
    use super::*;

    #[test]
    fn mentions() {
        let case = |map, expect: &[&str]| {
            let repo = Repo::of_files(&[("ARCHITECTURE.md", map)]);
            check(names_every_crate, &repo.with_member(Package::sample("w", "crates/wire", &[])), expect);
        };
        case("The crate crates/wire is pure.", &[]);
        case("crates/\n  wire/   pure", &[]);
        case("`wire` is pure", &[]);
        case("on the wire", &["ARCHITECTURE.md: does not mention `crates/wire`"]);
        case("crates/wireless and rewire/", &["ARCHITECTURE.md: does not mention `crates/wire`"]);
        check(names_every_crate, &Repo::default(), &["ARCHITECTURE.md: is missing"]);
    }
}
