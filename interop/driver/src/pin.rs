//! Finds the version of an SDK in the file that pins it.

use std::fs;
use std::path::Path;

use steadfast_test_setup::Failure;

/// Where the version of an SDK is written: directly after the text `before` in a file.
#[derive(Debug)]
pub(crate) struct Pin {
    file: &'static str,
    before: &'static str,
}

pub(crate) const fn pin(file: &'static str, before: &'static str) -> Pin {
    Pin { file, before }
}

impl Pin {
    /// Returns the version. The path of the file starts at `folder`.
    pub(crate) fn version(&self, folder: &Path) -> Result<String, Failure> {
        let path = folder.join(self.file);
        version_in(&fs::read_to_string(&path)?, self.before)
            .ok_or_else(|| Failure::Broken(format!("{} contains no version of the SDK", path.display())))
    }
}

fn version_in(text: &str, before: &str) -> Option<String> {
    let (_, rest) = text.split_once(before)?;
    let version = rest.split(|c: char| c.is_whitespace() || c == '"' || c == '<').next()?;
    version.contains('.').then(|| version.trim_start_matches('v').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found() {
        let check = |text, before, expect: Option<&str>| {
            assert_eq!(version_in(text, before).as_deref(), expect, "{text}");
        };
        check("a==1\nmcp==1.30.0\nb==2\n", "mcp==", Some("1.30.0"));
        check("{\"sdk\": \"1.32.2\",\n", "sdk\": \"", Some("1.32.2"));
        check("require go-sdk v1.8.0\n", "go-sdk ", Some("1.8.0"));
        check("<v>2.1.0</v>", "<v>", Some("2.1.0"));
        check("mcp", "mcp==", None);
    }
}
