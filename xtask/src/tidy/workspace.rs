//! The manifests of the workspace and of its dependencies, as `cargo metadata` prints them.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

#[derive(Debug, Default)]
pub(super) struct Workspace {
    pub(super) members: Vec<Package>,
    /// Packages outside the workspace, for every platform and feature.
    pub(super) externals: Vec<External>,
}

#[derive(Debug, Default)]
pub(super) struct Package {
    pub(super) name: String,
    /// Relative to the root, with `/` on every platform.
    pub(super) dir: String,
    /// The root file of each library and binary.
    pub(super) roots: Vec<String>,
    pub(super) dependencies: Vec<Dependency>,
}

#[derive(Debug)]
pub(super) struct Dependency {
    pub(super) name: String,
    /// Used by tests, examples and benchmarks only.
    pub(super) dev: bool,
}

#[derive(Debug)]
pub(super) struct External {
    pub(super) name: String,
    pub(super) version: String,
    /// An SPDX expression.
    pub(super) licence: Option<String>,
}

impl Workspace {
    pub(super) fn read(root: &Path) -> Result<Self, String> {
        let args = ["metadata", "--format-version", "1", "--locked"];
        let output = Command::new("cargo").args(args).current_dir(root).output();
        let output = output.map_err(|error| format!("cannot start cargo: {error}"))?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(format!("`cargo {}` failed:\n{}", args.join(" "), errors.trim_end()));
        }
        Self::parse(&output.stdout).ok_or_else(|| "cannot read the output of `cargo metadata`".to_owned())
    }

    fn parse(json: &[u8]) -> Option<Self> {
        let metadata: Value = serde_json::from_slice(json).ok()?;
        let root = metadata["workspace_root"].as_str()?;
        let members = metadata["workspace_members"].as_array()?;
        let mut workspace = Self::default();
        for package in metadata["packages"].as_array()? {
            if members.contains(&package["id"]) {
                workspace.members.push(Package::parse(package, root)?);
            } else {
                workspace.externals.push(External::parse(package)?);
            }
        }
        Some(workspace)
    }
}

impl Package {
    fn parse(json: &Value, root: &str) -> Option<Self> {
        let dir = relative(json["manifest_path"].as_str()?, root)?;
        let mut package = Self {
            name: json["name"].as_str()?.to_owned(),
            dir: dir.strip_suffix("/Cargo.toml")?.to_owned(),
            ..Self::default()
        };
        for target in json["targets"].as_array()? {
            let kinds = target["kind"].as_array()?;
            if kinds.iter().any(|kind| kind == "lib" || kind == "bin" || kind == "proc-macro") {
                package.roots.push(relative(target["src_path"].as_str()?, root)?);
            }
        }
        for dependency in json["dependencies"].as_array()? {
            let name = dependency["name"].as_str()?.to_owned();
            package.dependencies.push(Dependency { name, dev: dependency["kind"] == "dev" });
        }
        Some(package)
    }
}

impl External {
    fn parse(json: &Value) -> Option<Self> {
        Some(Self {
            name: json["name"].as_str()?.to_owned(),
            version: json["version"].as_str()?.to_owned(),
            licence: json["license"].as_str().map(str::to_owned),
        })
    }
}

fn relative(path: &str, root: &str) -> Option<String> {
    Some(path.strip_prefix(root)?.replace('\\', "/").trim_start_matches('/').to_owned())
}

#[cfg(test)]
impl Package {
    /// A crate in `dir`. A dependency that starts with `dev:` is a dev-dependency.
    pub(super) fn sample(name: &str, dir: &str, dependencies: &[&str]) -> Self {
        let dependency = |name: &&str| Dependency {
            name: name.trim_start_matches("dev:").to_owned(),
            dev: name.starts_with("dev:"),
        };
        Self {
            name: name.to_owned(),
            dir: dir.to_owned(),
            roots: vec![format!("{dir}/src/lib.rs")],
            dependencies: dependencies.iter().map(dependency).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = r#"{
        "workspace_root": "/w", "workspace_members": ["path+file:///w/crates/a#a@0.1.0"],
        "packages": [
            {"id": "path+file:///w/crates/a#a@0.1.0", "name": "a", "version": "0.1.0", "license": null,
             "manifest_path": "/w/crates/a/Cargo.toml",
             "targets": [{"kind": ["lib"], "src_path": "/w/crates/a/src/lib.rs"},
                         {"kind": ["test"], "src_path": "/w/crates/a/tests/t.rs"}],
             "dependencies": [{"name": "b", "kind": null}, {"name": "c", "kind": "dev"}]},
            {"id": "registry#b@1.2.3", "name": "b", "version": "1.2.3", "license": "MIT"}
        ]}"#;

    #[test]
    fn metadata_is_read() {
        let workspace = Workspace::parse(METADATA.as_bytes()).unwrap();
        let [a] = &workspace.members[..] else { panic!("{workspace:?}") };
        assert_eq!((a.name.as_str(), a.dir.as_str()), ("a", "crates/a"));
        assert_eq!(a.roots, ["crates/a/src/lib.rs"]);
        let dependencies: Vec<_> = a.dependencies.iter().map(|d| (d.name.as_str(), d.dev)).collect();
        assert_eq!(dependencies, [("b", false), ("c", true)]);
        let [b] = &workspace.externals[..] else { panic!("{workspace:?}") };
        assert_eq!((b.name.as_str(), b.version.as_str(), b.licence.as_deref()), ("b", "1.2.3", Some("MIT")));
    }

    #[test]
    fn other_output_is_refused() {
        assert!(Workspace::parse(b"{}").is_none());
        assert!(Workspace::parse(b"error").is_none());
    }
}
