//! The examples under `deploy/` are configurations that the command takes, with every store that they name.

use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The store that a compose file names.
fn store(compose: &str) -> String {
    let text = read(compose);
    let found = text.lines().find_map(|line| line.trim().strip_prefix("STEADFAST__STORE: "));
    found.unwrap_or_else(|| panic!("{compose} names no store")).to_owned()
}

fn check(config: &str, store: &str) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), config).expect("a file that can be written");
    let checked = Command::new(env!("CARGO_BIN_EXE_steadfast"))
        .args(["config", "check"])
        .arg(file.path())
        .env("STEADFAST__STORE", store)
        .output()
        .expect("the binary runs");
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "with {store}: {said}\n{config}");
}

#[test]
fn the_compose_files_have_a_store_and_a_configuration_that_work() {
    for compose in ["compose/redis.yaml", "compose/postgres.yaml"] {
        check(&read("steadfast.toml"), &store(compose));
    }
}

#[test]
fn the_manifest_has_a_configuration_that_works() {
    let manifest = read("kubernetes/steadfast.yaml");
    let (_, rest) = manifest.split_once("  steadfast.toml: |\n").expect("a configuration");
    let (config, _) = rest.split_once("\n---").expect("its end");
    let config: String =
        config.lines().map(|line| format!("{}\n", line.strip_prefix("    ").unwrap_or(line))).collect();
    check(&config, "redis://:PASSWORD@redis:6379");
}

#[test]
fn the_unit_names_a_store_that_works() {
    let unit = read("systemd/steadfast.service");
    let store = unit.lines().find_map(|line| line.strip_prefix("Environment=STEADFAST__STORE="));
    check(&read("steadfast.toml"), store.expect("a store"));
}
