//! The examples in `deploy/`: the command accepts their configurations, their stop timeouts are
//! long enough, and nginx accepts its configuration.

mod yaml;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use yaml::Yaml;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

const COMPOSE: [&str; 2] = ["compose/redis.yaml", "compose/postgres.yaml"];
const MANIFEST: &str = "kubernetes/steadfast.yaml";

/// The documents of a file.
fn documents(name: &str) -> Vec<Yaml> {
    yaml::parse(&read(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The gateways of a compose file: they share one description.
fn gateway(compose: &str) -> Yaml {
    let [document] = &documents(compose)[..] else { panic!("{compose} is not one document") };
    let gateways = [1, 2, 3].map(|number| document.at(&format!("services.gateway-{number}")));
    assert!(gateways.iter().all(|gateway| *gateway == gateways[0]), "{compose}: gateways differ");
    gateways[0].unwrap_or_else(|| panic!("{compose} has no gateway")).clone()
}

fn text<'a>(yaml: &'a Yaml, path: &str) -> &'a str {
    yaml.at(path).and_then(Yaml::text).unwrap_or_else(|| panic!("there is no {path}"))
}

/// The resource of this kind in the manifest.
fn resource(kind: &str) -> Yaml {
    let found = documents(MANIFEST).into_iter().find(|document| text(document, "kind") == kind);
    found.unwrap_or_else(|| panic!("{MANIFEST} has no {kind}"))
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
    let errors = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "with {store}: {errors}\n{config}");
}

/// Parses `90`, `1m30s` or `90s`.
fn seconds(text: &str) -> Duration {
    let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("{text} is no number"));
    let (minutes, rest) = text.split_once('m').unwrap_or(("0", text));
    Duration::from_secs(number(minutes) * 60 + number(rest.trim_end_matches('s')))
}

/// The longest shutdown with this configuration, defaults included.
fn shutdown_time(config: &str) -> Duration {
    let schema = Command::new(env!("CARGO_BIN_EXE_steadfast")).args(["config", "schema"]).output();
    let schema: Value = serde_json::from_slice(&schema.expect("the binary runs").stdout).expect("JSON");
    let config: toml::Table = config.parse().expect("TOML");
    let time = |key: &str| {
        let configured = config.get("shutdown").and_then(|shutdown| shutdown.get(key)?.as_str());
        let default = schema.pointer(&format!("/properties/shutdown/default/{key}")).and_then(Value::as_str);
        seconds(configured.or(default).expect("a duration"))
    };
    time("delay") + time("drain") + time("flush")
}

#[test]
fn every_yaml_file_can_be_parsed() {
    let mut folders = vec![folder()];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|name| name == "yaml" || name == "yml") {
                documents(&path.display().to_string());
                seen += 1;
            }
        }
    }
    assert_eq!(seen, COMPOSE.len() + 1, "a file is not covered by these tests");
}

#[test]
fn the_compose_files_have_a_store_and_a_configuration_that_work() {
    for compose in COMPOSE {
        check(&read("steadfast.toml"), text(&gateway(compose), "environment.STEADFAST__STORE"));
    }
}

#[test]
fn the_compose_files_name_files_that_are_there() {
    for compose in COMPOSE {
        let document = &documents(compose)[0];
        let from = folder().join("compose");
        let is_there = |path: &str| assert!(from.join(path).is_file(), "{compose}: there is no {path}");
        let gateway = gateway(compose);
        is_there(&format!("{}/{}", text(&gateway, "build.context"), text(&gateway, "build.dockerfile")));
        for mount in [text(&gateway, "volumes.0"), text(document, "services.balancer.volumes.0")] {
            is_there(mount.split(':').next().unwrap_or_default());
        }
    }
}

#[test]
fn the_manifest_has_a_configuration_that_works() {
    let config = resource("ConfigMap");
    let Some(Yaml::Map(files)) = config.at("data") else { panic!("no data") };
    let [(name, config)] = &files[..] else { panic!("not one file") };
    assert_eq!(name, "steadfast.toml");
    check(config.text().expect("a file"), "redis://:PASSWORD@redis:6379");
}

#[test]
fn the_unit_names_a_store_that_works() {
    let unit = read("systemd/steadfast.service");
    let store = unit.lines().find_map(|line| line.strip_prefix("Environment=STEADFAST__STORE="));
    check(&read("steadfast.toml"), store.expect("a store"));
}

/// Node.js compiles at run time, and `npx` needs HOME for its downloads, which a dynamic user does
/// not have.
#[test]
fn the_unit_fits_programs_that_are_started_by_npx() {
    let unit = read("systemd/steadfast.service");
    let value = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key));
    let state = value("StateDirectory=").expect("a folder that can be written");
    assert_eq!(value("Environment=HOME="), Some(format!("/var/lib/{state}").as_str()));
    assert_eq!(value("MemoryDenyWriteExecute="), None);
}

#[test]
fn stop_timeouts_are_longer_than_a_shutdown() {
    let longer = |name: &str, given: Duration, needed: Duration| {
        assert!(given > needed, "{name} gives {given:?}, a gateway may take {needed:?}");
    };
    let needed = shutdown_time(&read("steadfast.toml"));
    for compose in COMPOSE {
        longer(compose, seconds(text(&gateway(compose), "stop_grace_period")), needed);
    }
    let unit = read("systemd/steadfast.service");
    let given = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).expect("a time");
    longer("the unit", seconds(given), needed);

    let (config, deployment) = (resource("ConfigMap"), resource("Deployment"));
    let Some(Yaml::Map(files)) = config.at("data") else { panic!("no data") };
    let pod = deployment.at("spec.template.spec").expect("a pod");
    let before = seconds(text(pod, "containers.0.lifecycle.preStop.sleep.seconds"));
    let needed = before + shutdown_time(files[0].1.text().expect("a file"));
    longer(MANIFEST, seconds(text(pod, "terminationGracePeriodSeconds")), needed);
}

/// The first version of nginx that resolves names again at run time. The images of the compose
/// files are newer.
const RESOLVES_SINCE: [u64; 3] = [1, 27, 3];

#[test]
fn the_balancers_are_new_enough() {
    for compose in COMPOSE {
        let image = text(&documents(compose)[0], "services.balancer.image").to_owned();
        let version = image.strip_prefix("nginx:").expect("nginx");
        assert!(numbers(version) >= RESOLVES_SINCE.to_vec(), "{compose}: {image}");
    }
}

/// Replaces the names of containers by loopback addresses. Skipped without nginx, except in CI.
#[test]
fn nginx_accepts_the_configuration() {
    let Ok(output) = Command::new("nginx").arg("-v").output() else {
        assert!(!std::env::var("CI").is_ok_and(|ci| ci == "true"), "there is no nginx");
        return;
    };
    let output = String::from_utf8_lossy(&output.stderr).into_owned();
    let version = numbers(output.split_once("nginx/").expect("a version").1);
    let mut config = read("nginx.conf");
    for number in 1..=3 {
        let name = format!("gateway-{number}:");
        assert!(config.contains(&name), "there is no {name}");
        config = config.replace(&name, "127.0.0.1:");
    }
    if version < RESOLVES_SINCE.to_vec() {
        config = config.replace(" resolve ", " ");
    }
    // The default paths of nginx may not be writable.
    let here = ["access_log off", "client_body_temp_path body", "proxy_temp_path proxy"];
    let too = ["fastcgi_temp_path fastcgi", "uwsgi_temp_path uwsgi", "scgi_temp_path scgi"];
    let paths: Vec<String> = here.iter().chain(&too).map(|path| format!("{path};")).collect();
    config = config.replace("http {\n", &format!("http {{\n    {}\n", paths.join(" ")));
    let directory = tempfile::tempdir().expect("a folder");
    std::fs::write(directory.path().join("nginx.conf"), config).expect("a file that can be written");
    let tested = Command::new("nginx")
        .args(["-t", "-e", "stderr", "-g", "pid nginx.pid;", "-c", "nginx.conf", "-p"])
        .arg(directory.path())
        .output()
        .expect("nginx runs");
    assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stderr));
}

/// Parses `1.28` and `1.27.3 (Ubuntu)` for comparison.
fn numbers(version: &str) -> Vec<u64> {
    let words = version.split(|c: char| !c.is_ascii_digit() && c != '.').next().unwrap_or_default();
    words.split('.').map_while(|number| number.parse().ok()).collect()
}
