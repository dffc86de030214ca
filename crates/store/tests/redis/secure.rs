//! TLS.
//!
//! Whom to believe is said by the environment, which is one for the whole process: so a process of its own opens the store.

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

/// Names the server to a copy of this test program.
const URL: &str = "STEADFAST_TEST_REDIS_URL";

/// Marks what the copy says among the lines of the test harness.
const MARK: &str = "visitor: ";

/// The process that opens the store. Does nothing in an ordinary run.
#[tokio::test]
async fn visitor() {
    let Ok(url) = std::env::var(URL) else { return };
    let options = RedisOptions::parse(&url).expect("an address");
    let options = RedisOptions { patience: Duration::from_millis(300), ..options };
    let store = match RedisStore::open(Rules::default(), options) {
        Ok(store) => store,
        Err(error) => return println!("\n{MARK}{error}"),
    };
    // News come on a connection of this kind, too.
    let said = match store.join(ONE, NOW).await {
        Ok(()) => store.open(facts(id(1))).await.map(|_| ()),
        Err(error) => Err(error),
    };
    println!("\n{MARK}{}", said.map_or_else(|error| error.to_string(), |()| "opened".to_owned()));
}

fn visit(url: &str, believed: &Path) -> String {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "secure::visitor", "--nocapture"])
        .env(URL, url)
        .env("SSL_CERT_FILE", believed)
        .env_remove("SSL_CERT_DIR")
        .output()
        .expect("the visitor runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let line = said.lines().find_map(|line| line.strip_prefix(MARK));
    line.unwrap_or_else(|| panic!("{said}{}", String::from_utf8_lossy(&output.stderr))).to_owned()
}

/// Where a server's certificate is, its authority and one that has nothing to do with it.
struct Papers {
    folder: tempfile::TempDir,
}

impl Papers {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let papers = Self { folder };
        let authority = authority();
        let key = KeyPair::generate().expect("a key");
        let server = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let server = server.signed_by(&key, &authority).expect("a certificate");
        papers.write("server.crt", &server.pem());
        papers.write("server.key", &key.serialize_pem());
        papers.write("authority.pem", &authority.pem());
        papers.write("stranger.pem", &self::authority().pem());
        papers
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

/// Starts a server that speaks TLS on a port of its own, and gives that port.
fn start(papers: &Papers, start: impl FnOnce(&[&str]) -> Option<RedisServer>) -> Option<(RedisServer, u16)> {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let [certificate, key, authority] =
        ["server.crt", "server.key", "authority.pem"].map(|name| papers.path(name).display().to_string());
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

/// `why` is what somebody says who does not believe.
fn check(scheme: &str, port: u16, papers: &Papers, why: &str) {
    let url = |host: &str| format!("{scheme}://{host}:{port}");
    assert_eq!(visit(&url("localhost"), &papers.path("authority.pem")), "opened");
    let refused = |host: &str, believed: &str| {
        let said = visit(&url(host), &papers.path(believed));
        assert!(said.contains(why), "{host}, {believed}: {said}");
    };
    refused("localhost", "stranger.pem");
    refused("127.0.0.1", "authority.pem");
}

#[test]
fn a_server_is_believed_for_its_certificate() {
    let papers = Papers::new();
    let Some((_server, port)) = start(&papers, RedisServer::start) else { return };
    check("rediss", port, &papers, "certificate");
}

/// Its servers are found by what it says of them, and each has to show its certificate.
#[test]
fn a_cluster_is_believed_for_its_certificates() {
    const NAMED: [&str; 6] = [
        "--tls-cluster",
        "yes",
        "--cluster-announce-hostname",
        "localhost",
        "--cluster-preferred-endpoint-type",
        "hostname",
    ];
    let papers = Papers::new();
    let announced = |arguments: &[&str]| RedisServer::start_alone(&[arguments, &NAMED].concat());
    let Some((_server, port)) = start(&papers, announced) else { return };
    check("rediss+cluster", port, &papers, "No connections found");
}
