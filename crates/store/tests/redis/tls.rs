//! TLS to Redis.
//!
//! The environment of the process says which certificate authorities to trust. So a separate
//! process opens the store.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use steadfast_session::Rules;
use steadfast_store::testing::server::RedisServer;
use steadfast_store::{RedisOptions, RedisStore, Store as _};

use crate::common::{NOW, ONE, facts, id};

/// Passes the address of the server to a copy of this test program.
const URL: &str = "STEADFAST_TEST_REDIS_URL";

/// Marks the result of the copy among the lines of the test harness.
const MARK: &str = "child: ";

/// The process that opens the store. Does nothing in an ordinary run.
#[tokio::test]
async fn child_process() {
    let Ok(url) = std::env::var(URL) else { return };
    let options = RedisOptions::parse(&url).expect("an address");
    let options = RedisOptions { retry_window: Duration::from_millis(300), ..options };
    let store = match RedisStore::open(Rules::default(), options) {
        Ok(store) => store,
        Err(error) => return println!("\n{MARK}{error}"),
    };
    // Joining also subscribes to hints, on a connection of the same kind.
    let output = match store.join(ONE, NOW).await {
        Ok(()) => store.open(facts(id(1))).await.map(|_| ()),
        Err(error) => Err(error),
    };
    println!("\n{MARK}{}", output.map_or_else(|error| error.to_string(), |()| "opened".to_owned()));
}

fn run_child_process(url: &str, trusted: &Path) -> String {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "tls::child_process", "--nocapture"])
        .env(URL, url)
        .env("SSL_CERT_FILE", trusted)
        .env_remove("SSL_CERT_DIR")
        .output()
        .expect("the child process runs");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let line = stdout.lines().find_map(|line| line.strip_prefix(MARK));
    line.unwrap_or_else(|| panic!("{stdout}{}", String::from_utf8_lossy(&output.stderr))).to_owned()
}

/// A folder with a server's certificate, its authority, and an unrelated authority.
struct Certificates {
    folder: tempfile::TempDir,
}

impl Certificates {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let certificates = Self { folder };
        let authority = authority();
        let key = KeyPair::generate().expect("a key");
        let server = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let server = server.signed_by(&key, &authority).expect("a certificate");
        certificates.write("server.crt", &server.pem());
        certificates.write("server.key", &key.serialize_pem());
        certificates.write("authority.pem", &authority.pem());
        certificates.write("stranger.pem", &self::authority().pem());
        certificates
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a file");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a certificate")
}

/// Starts a server with TLS on a port of its own, and returns that port.
fn start(
    certificates: &Certificates,
    start: impl FnOnce(&[&str]) -> Option<RedisServer>,
) -> Option<(RedisServer, u16)> {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let [certificate, key, authority] = ["server.crt", "server.key", "authority.pem"]
        .map(|name| certificates.path(name).display().to_string());
    let server = start(&[
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &authority,
        "--tls-auth-clients",
        "no",
    ])?;
    Some((server, port))
}

/// Checks that the certificate is verified. `why` is part of the error if it is rejected.
fn check(scheme: &str, port: u16, certificates: &Certificates, why: &str) {
    let url = |host: &str| format!("{scheme}://{host}:{port}");
    assert_eq!(run_child_process(&url("localhost"), &certificates.path("authority.pem")), "opened");
    let refused = |host: &str, trusted: &str| {
        let output = run_child_process(&url(host), &certificates.path(trusted));
        assert!(output.contains(why), "{host}, {trusted}: {output}");
    };
    refused("localhost", "stranger.pem");
    refused("127.0.0.1", "authority.pem");
}

#[test]
fn the_certificate_of_a_server_is_verified() {
    let certificates = Certificates::new();
    let Some((_server, port)) = start(&certificates, RedisServer::start) else { return };
    check("rediss", port, &certificates, "certificate");
}

/// The client finds the servers of a cluster by the names that the cluster announces, and each must
/// show its certificate.
#[test]
fn certificates_of_a_cluster_are_verified() {
    const ANNOUNCE_HOSTNAME: [&str; 6] = [
        "--tls-cluster",
        "yes",
        "--cluster-announce-hostname",
        "localhost",
        "--cluster-preferred-endpoint-type",
        "hostname",
    ];
    let certificates = Certificates::new();
    let announced = |arguments: &[&str]| {
        RedisServer::start_single_node_cluster(&[arguments, &ANNOUNCE_HOSTNAME].concat())
    };
    let Some((_server, port)) = start(&certificates, announced) else { return };
    check("rediss+cluster", port, &certificates, "No connections found");
}
