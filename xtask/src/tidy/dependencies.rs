//! Rules about dependencies: direction, purity, doubled versions.

use std::collections::BTreeMap;

use super::Finding;
use super::repo::Repo;

/// The folders in `crates/`. Each may only depend on those before it.
const LAYERS: &[&str] =
    &["wire", "session", "store", "engine", "http", "steadfast", "client", "auth", "upstream", "gateway"];

/// The layers without IO, clocks, randomness and tasks.
const PURE: &[&str] = &["wire", "session"];
/// Crates that pure layers must not use. A name that ends in `-` is a prefix.
const IMPURE: &str = "tokio tokio- async- futures futures- smol mio hyper hyper- tower tower- axum reqwest \
    redis postgres rusqlite socket2 rand fastrand getrandom";

pub(super) fn point_one_way(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in &repo.workspace.members {
        let Some(folder) = member.dir.strip_prefix("crates/") else { continue };
        let manifest = format!("{}/Cargo.toml", member.dir);
        let Some(layer) = layer(folder) else {
            let remedy = "add it to LAYERS in xtask/src/tidy/dependencies.rs";
            findings.push(Finding::problem(&manifest, None, "is a crate without a layer".to_owned(), remedy));
            continue;
        };
        for dependency in &member.dependencies {
            let Some(target) = repo.workspace.members.iter().find(|other| other.name == dependency.name)
            else {
                continue;
            };
            // A crate may be its own dev-dependency, which turns on its features for its tests.
            let allowed = (dependency.dev && target.name == member.name)
                || match target.dir.strip_prefix("crates/") {
                    Some(below) => self::layer(below).is_none_or(|below| below < layer),
                    // Test tools may be dev-dependencies of the product.
                    None => dependency.dev,
                };
            if !allowed {
                let line = repo.line_of_dependency(member, &dependency.name);
                let what = format!("{folder} must not depend on {}", target.dir);
                let remedy = "dependencies point one way (see LAYERS in xtask/src/tidy/dependencies.rs): \
                              move what is shared into the lower crate";
                findings.push(Finding::problem(&manifest, line, what, remedy));
            }
        }
    }
    findings
}

pub(super) fn pure_crates_stay_pure(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in &repo.workspace.members {
        let Some(folder) = member.dir.strip_prefix("crates/").filter(|folder| PURE.contains(folder)) else {
            continue;
        };
        for dependency in member.dependencies.iter().filter(|dependency| is_impure(&dependency.name)) {
            let line = repo.line_of_dependency(member, &dependency.name);
            let what = format!("{folder} is pure and must not depend on {}", dependency.name);
            let remedy = "let the engine or a store do that part, and pass its result in";
            findings.push(Finding::problem(&format!("{}/Cargo.toml", member.dir), line, what, remedy));
        }
    }
    findings
}

/// Gives notes only: two versions cost time and size, but this repository can seldom change that.
pub(super) fn one_version_each(repo: &Repo) -> Vec<Finding> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for external in &repo.workspace.externals {
        versions.entry(&external.name).or_default().push(&external.version);
    }
    let several = versions.into_iter().filter(|(_, versions)| versions.len() > 1);
    let note = |(name, versions): (&str, Vec<&str>)| {
        Finding::note(
            "Cargo.lock",
            format!("{name} has {} versions: {}", versions.len(), versions.join(", ")),
        )
    };
    several.map(note).collect()
}

fn layer(folder: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| *layer == folder)
}

fn is_impure(name: &str) -> bool {
    IMPURE.split(' ').any(|word| if word.ends_with('-') { name.starts_with(word) } else { name == word })
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::super::workspace::{External, Package};
    use super::*;

    #[test]
    fn direction() {
        let case = |dir, dependency: &str, expect: &[&str]| {
            let line =
                format!("[dependencies]\n{}.workspace = true\n", dependency.trim_start_matches("dev:"));
            let repo = Repo::of_files(&[("crates/store/Cargo.toml", &line)])
                .with_member(Package::sample("steadfast-wire", "crates/wire", &[]))
                .with_member(Package::sample("steadfast", "crates/steadfast", &[]))
                .with_member(Package::sample("verify", "verify", &["steadfast"]))
                .with_member(Package::sample("it", dir, &[dependency]));
            check(point_one_way, &repo, expect);
        };
        case("crates/store", "steadfast-wire", &[]);
        case("crates/store", "bytes", &[]);
        case(
            "crates/store",
            "steadfast",
            &["crates/store/Cargo.toml:2: store must not depend on crates/steadfast"],
        );
        case(
            "crates/store",
            "dev:steadfast",
            &["crates/store/Cargo.toml:2: store must not depend on crates/steadfast"],
        );
        case("crates/store", "verify", &["crates/store/Cargo.toml:2: store must not depend on verify"]);
        case("crates/store", "dev:verify", &[]);
        case("crates/novel", "bytes", &["crates/novel/Cargo.toml: is a crate without a layer"]);
        case("bench", "steadfast", &[]);
    }

    #[test]
    fn purity() {
        let case = |dir: &str, dependency: &str, expect: &[&str]| {
            let manifest = format!("[dependencies]\n\n{dependency} = \"1\"\n");
            let repo = Repo::of_files(&[(&format!("{dir}/Cargo.toml"), &manifest)]);
            check(
                pure_crates_stay_pure,
                &repo.with_member(Package::sample("it", dir, &[dependency])),
                expect,
            );
        };
        case("crates/wire", "bytes", &[]);
        case(
            "crates/wire",
            "tokio",
            &["crates/wire/Cargo.toml:3: wire is pure and must not depend on tokio"],
        );
        case(
            "crates/session",
            "futures-util",
            &["crates/session/Cargo.toml:3: session is pure and must not depend on futures-util"],
        );
        case("crates/store", "tokio", &[]);
    }

    #[test]
    fn versions() {
        let case = |packages: &[(&str, &str)], expect: &[&str]| {
            let mut repo = Repo::default();
            for (name, version) in packages {
                let (name, version) = ((*name).to_owned(), (*version).to_owned());
                repo.workspace.externals.push(External { name, version, licence: None });
            }
            check(one_version_each, &repo, expect);
        };
        case(&[("a", "1.0.0"), ("b", "1.0.0")], &[]);
        case(&[("a", "1.0.0"), ("a", "2.0.0")], &["note: Cargo.lock: a has 2 versions: 1.0.0, 2.0.0"]);
    }
}
