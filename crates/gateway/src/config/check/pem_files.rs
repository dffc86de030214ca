//! Reads the PEM files that an endpoint names: certificate authorities, client certificates and
//! keys.

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use steadfast_client::transport::{Identity, Tls, TlsError, TlsFiles};

use super::Checks;
use crate::config::file::UpstreamTls;
use crate::config::plan::FileDigests;

const PEM: &str = "the path of a PEM file";

impl Checks<'_> {
    /// TLS settings for `https` addresses of the server.
    pub(super) fn upstream_tls(&mut self, at: &str, table: &UpstreamTls) -> (Tls, FileDigests) {
        let mut digests = FileDigests::default();
        let key = |name: &str| format!("{at}.upstream_tls.{name}");
        let missing = match (&table.certificate, &table.key) {
            (Some(_), None) => Some(("certificate", "key")),
            (None, Some(_)) => Some(("key", "certificate")),
            _ => None,
        };
        if let Some((name, other)) = missing {
            self.fault(key(name), format!("`{other}` is not set"), PEM);
        }
        let identity = table.certificate.as_ref().zip(table.key.as_ref());
        let files = TlsFiles {
            ca: table.ca.as_ref().map(PathBuf::from),
            identity: identity
                .map(|(certificates, key)| Identity { certificates: certificates.into(), key: key.into() }),
        };
        if files == TlsFiles::default() {
            return (Tls::public(), digests);
        }
        let keys =
            [(key("ca"), &table.ca), (key("certificate"), &table.certificate), (key("key"), &table.key)];
        let keys: Vec<(&str, &str)> =
            keys.iter().filter_map(|(key, file)| Some((key.as_str(), file.as_deref()?))).collect();
        let tls = self.load_tls(&keys, &files, &mut digests);
        (tls, digests)
    }

    /// Loads `files`. `keys` pairs each key of the configuration with the file that it names, for
    /// faults.
    pub(super) fn load_tls(
        &mut self,
        keys: &[(&str, &str)],
        files: &TlsFiles,
        digests: &mut FileDigests,
    ) -> Tls {
        let faults = self.faults.len();
        for (key, file) in keys {
            self.read_watched(key, file, PEM, digests);
        }
        if self.faults.len() > faults {
            return Tls::public();
        }
        match (self.environment.load_tls)(files) {
            Ok(tls) => tls,
            Err(error) => {
                let unusable = match &error {
                    TlsError::Unreadable { file, .. } | TlsError::Unusable { file, .. } => file,
                    TlsError::NoCertificate(file) | TlsError::NoKey(file) => file,
                };
                let key = keys.iter().find(|(_, file)| Path::new(file) == unusable);
                self.fault(key.map_or("", |(key, _)| key), error.to_string(), PEM);
                Tls::public()
            }
        }
    }

    /// Reads a file, and adds it to the files whose changes reload the configuration.
    pub(super) fn read_watched(
        &mut self,
        key: &str,
        file: &str,
        remedy: &str,
        digests: &mut FileDigests,
    ) -> Option<String> {
        match (self.environment.read_file)(file.as_ref()) {
            Ok(text) => {
                digests.push((file.into(), Sha256::digest(text.as_bytes()).into()));
                Some(text)
            }
            Err(error) => {
                self.fault(key, format!("{file} cannot be read: {error}"), remedy);
                None
            }
        }
    }
}
