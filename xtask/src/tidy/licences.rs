//! The rule that the licences of all dependencies are in the list of `deny.toml`.

use super::Finding;
use super::repo::Repo;

const LIST: &str = "deny.toml";
/// Stands for parentheses that are allowed.
const ALLOWED: &str = "+";

pub(super) fn are_allowed(repo: &Repo) -> Vec<Finding> {
    let allowed = allowed(repo.text(LIST).unwrap_or_default());
    if allowed.is_empty() {
        let what = "has no list of licences".to_owned();
        return vec![Finding::problem(LIST, None, what, "put `allow = [...]` under `[licenses]`")];
    }
    let mut findings = Vec::new();
    for external in &repo.workspace.externals {
        let what = match &external.licence {
            None => "names no licence".to_owned(),
            Some(licence) if is_allowed(licence, &allowed) => continue,
            Some(licence) => format!("licence `{licence}` is not allowed"),
        };
        let what = format!("{} {}: {what}", external.name, external.version);
        let remedy =
            "use another crate, or allow the licence in deny.toml if its terms suit a MIT/Apache product";
        findings.push(Finding::problem("Cargo.lock", None, what, remedy));
    }
    findings
}

/// Returns the strings of `allow = [...]` in the section `[licenses]`.
fn allowed(deny: &str) -> Vec<&str> {
    let section = deny.lines().skip_while(|line| line.trim() != "[licenses]").skip(1);
    let section = section.take_while(|line| !line.starts_with('['));
    let mut allowed = Vec::new();
    let mut inside = false;
    for line in section {
        let line = line.split('#').next().unwrap_or_default();
        inside |= line.trim_start().starts_with("allow ") || line.trim_start().starts_with("allow=");
        if inside {
            allowed.extend(line.split('"').skip(1).step_by(2));
            inside = !line.contains(']');
        }
    }
    allowed
}

/// Returns true if the SPDX expression offers a choice in which all licences are allowed. Reduces
/// the innermost parentheses first. An expression that is not SPDX is not allowed.
fn is_allowed(licence: &str, allowed: &[&str]) -> bool {
    // Old manifests contain `MIT/Apache-2.0` for `MIT OR Apache-2.0`.
    let mut text = licence.replace('/', " OR ");
    while let Some(close) = text.find(')') {
        let Some(open) = text[..close].rfind('(') else { return false };
        let inner = if any_choice_is_allowed(&text[open + 1..close], allowed) { ALLOWED } else { "-" };
        text.replace_range(open..=close, inner);
    }
    any_choice_is_allowed(&text, allowed)
}

fn any_choice_is_allowed(text: &str, allowed: &[&str]) -> bool {
    let is_listed = |licence: &str| licence.trim() == ALLOWED || allowed.contains(&licence.trim());
    text.split(" OR ").any(|choice| choice.split(" AND ").all(is_listed))
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::super::workspace::External;
    use super::*;

    const DENY: &str = "\
[bans]
allow = [\"none\"]
[licenses]
confidence = 1
allow = [
  \"MIT\", # \"GPL-3.0\"
  \"Apache-2.0\",
  \"Apache-2.0 WITH LLVM-exception\",
  \"Unicode-3.0\",
]
other = [\"x\"]
[sources]
";

    #[test]
    fn list() {
        assert_eq!(allowed(DENY), ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"]);
        assert_eq!(allowed("[licenses]\nallow = [\"MIT\", \"ISC\"]"), ["MIT", "ISC"]);
        check(are_allowed, &Repo::default(), &["deny.toml: has no list of licences"]);
    }

    #[test]
    fn expressions() {
        let case = |licence: &str, complaint: Option<&str>| {
            let mut repo = Repo::of_files(&[("deny.toml", DENY)]);
            let licence = (!licence.is_empty()).then(|| licence.to_owned());
            let (name, version) = ("a".to_owned(), "1.0.0".to_owned());
            repo.workspace.externals.push(External { name, version, licence });
            let expect = complaint.map(|complaint| format!("Cargo.lock: a 1.0.0: {complaint}"));
            check(are_allowed, &repo, &expect.as_deref().into_iter().collect::<Vec<_>>());
        };
        for good in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0 OR MIT",
            "GPL-3.0/MIT",
            "MIT AND Apache-2.0",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "GPL-3.0 AND GPL-2.0 OR MIT",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            case(good, None);
        }
        for bad in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "MIT AND (GPL-3.0 OR GPL-2.0)",
            "MIT WITH LLVM-exception",
            "Apache-2.0+",
            "MIT OR",
            "MIT MIT",
            "(MIT",
            "MIT)",
            "OR",
            "MIT WITH",
        ] {
            case(bad, Some(&format!("licence `{bad}` is not allowed")));
        }
        case("", Some("names no licence"));
    }
}
