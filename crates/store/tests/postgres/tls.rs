//! TLS and passwords.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use steadfast_session::Rules;
use steadfast_store::StoreError;

use crate::common::open_session;
use crate::database::{Server, Store, open, parse};

const ACCESS: &str = "\
host all postgres 127.0.0.1/32 trust
hostssl all app 127.0.0.1/32 scram-sha-256
";

/// Creates a certificate authority, and adds a certificate of it to the folder of a server.
fn add_certificates(folder: &Path) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().expect("a certificate"))
        .expect("a certificate");
    let key = KeyPair::generate().expect("a certificate");
    let server = CertificateParams::new(vec!["localhost".to_owned()])
        .expect("a certificate")
        .signed_by(&key, &authority)
        .expect("a certificate");
    fs::write(folder.join("pg_hba.conf"), ACCESS).expect("a certificate");
    fs::write(folder.join("server.crt"), server.pem()).expect("a certificate");
    fs::write(folder.join("server.key"), key.serialize_pem()).expect("a certificate");
    fs::set_permissions(folder.join("server.key"), fs::Permissions::from_mode(0o600)).expect("a certificate");
    fs::write(std::env::temp_dir().join(authority_file()), authority.pem()).expect("a certificate");
}

/// The authority's file is beside the server's folder, which only the server's user can read.
fn authority_file() -> String {
    format!("steadfast-test-{}-ca.pem", std::process::id())
}

#[tokio::test]
async fn a_server_with_a_certificate_and_a_password() {
    let Some(server) = Server::prepare(&["ssl=on"], add_certificates) else { return };
    server.ask("CREATE ROLE app LOGIN PASSWORD 's3cret'; CREATE SCHEMA t AUTHORIZATION app");
    let ca = std::env::temp_dir().join(authority_file());
    let url = |host: &str, password: &str, more: &str| {
        format!("postgres://app:{password}@{host}:{}/postgres?schema=t&{more}", server.port())
    };
    let believing = format!("sslmode=verify-full&sslrootcert={}", ca.display());
    open_session(&open(parse(&url("localhost", "s3cret", &believing))), 1).await;

    let refused = |url: &str, why: &str| match Store::open(Rules::default(), parse(url)) {
        Err(StoreError::Unavailable(text)) => {
            assert!(text.contains(why), "{text}");
            assert!(!text.contains("gue55") && !text.contains("s3cret"), "{text}");
        }
        other => panic!("{other:?}"),
    };
    refused(&url("localhost", "gue55", &believing), "password authentication failed");
    refused(&url("localhost", "s3cret", "sslmode=require"), "certificate");
    refused(&url("127.0.0.1", "s3cret", &believing), "certificate");
    refused(&url("localhost", "s3cret", "sslmode=disable"), "no pg_hba.conf entry");
    refused(&url("localhost", "s3cret", "sslmode=require&sslrootcert=/nowhere"), "/nowhere");
    let _ = fs::remove_file(ca);
}

#[tokio::test]
async fn there_is_no_fallback_to_a_server_without_tls() {
    let Some(server) = Server::shared() else { return };
    let url = format!("postgres://postgres@localhost:{}/postgres?sslmode=require", server.port());
    match Store::open(Rules::default(), parse(&url)) {
        Err(StoreError::Unavailable(why)) => assert!(why.contains("sslmode=disable"), "{why}"),
        other => panic!("{other:?}"),
    }
}
