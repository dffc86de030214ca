//! Licences of all dependencies, against the list in `deny.toml`, which is the only one.

use super::Finding;
use super::repo::Repo;

const LIST: &str = "deny.toml";

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
            Some(licence) => match Expression::satisfied(licence, &allowed) {
                Some(true) => continue,
                Some(false) => format!("licence `{licence}` is not allowed"),
                None => format!("licence `{licence}` is no SPDX expression"),
            },
        };
        let what = format!("{} {}: {what}", external.name, external.version);
        let remedy =
            "use another crate, or allow the licence in deny.toml if its terms suit a MIT/Apache product";
        findings.push(Finding::problem("Cargo.lock", None, what, remedy));
    }
    findings
}

/// The strings of `allow = [...]` in the section `[licenses]`.
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

/// An SPDX expression being read: `OR` of `AND` of terms, each a licence or something in parentheses.
struct Expression<'a> {
    tokens: Vec<&'a str>,
    at: usize,
    allowed: &'a [&'a str],
}

impl<'a> Expression<'a> {
    /// Whether some choice among the offered licences needs allowed ones only; `None` if it cannot be read.
    fn satisfied(text: &str, allowed: &[&str]) -> Option<bool> {
        // Old manifests write `MIT/Apache-2.0` for `MIT OR Apache-2.0`.
        let text = text.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
        let mut expression = Expression { tokens: text.split_whitespace().collect(), at: 0, allowed };
        let satisfied = expression.any()?;
        (expression.at == expression.tokens.len()).then_some(satisfied)
    }

    fn any(&mut self) -> Option<bool> {
        let mut satisfied = self.all()?;
        while self.eat("OR") {
            satisfied |= self.all()?;
        }
        Some(satisfied)
    }

    fn all(&mut self) -> Option<bool> {
        let mut satisfied = self.term()?;
        while self.eat("AND") {
            satisfied &= self.term()?;
        }
        Some(satisfied)
    }

    fn term(&mut self) -> Option<bool> {
        if self.eat("(") {
            let satisfied = self.any()?;
            return self.eat(")").then_some(satisfied);
        }
        let licence = self.name()?;
        if self.eat("WITH") {
            let licence = format!("{licence} WITH {}", self.name()?);
            return Some(self.allowed.contains(&licence.as_str()));
        }
        Some(self.allowed.contains(&licence))
    }

    fn name(&mut self) -> Option<&'a str> {
        let name = *self.tokens.get(self.at)?;
        self.at += 1;
        (!["OR", "AND", "WITH", "(", ")"].contains(&name)).then_some(name)
    }

    fn eat(&mut self, token: &str) -> bool {
        let found = self.tokens.get(self.at) == Some(&token);
        self.at += usize::from(found);
        found
    }
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
        ] {
            case(bad, Some(&format!("licence `{bad}` is not allowed")));
        }
        for odd in ["MIT OR", "MIT MIT", "(MIT", "OR", "MIT WITH"] {
            case(odd, Some(&format!("licence `{odd}` is no SPDX expression")));
        }
        case("", Some("names no licence"));
    }
}
