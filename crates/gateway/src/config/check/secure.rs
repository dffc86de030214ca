//! The same for files that say whom to believe, and what to show.

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use steadfast_client::transport::{Identity, Tls, TlsError, TlsFiles};

use super::Checks;
use crate::config::endpoint::Endpoint;
use crate::config::plan::Named;

const PEM: &str = "the path of a PEM file";

impl Checks<'_> {
    /// How the server is reached at `https` addresses.
    pub(super) fn server_tls(&mut self, at: &str, written: &Endpoint) -> (Tls, Named) {
        let mut named = Named::default();
        let key = |name: &str| format!("{at}.{name}");
        let (certificate, secret) = (&written.client_certificate, &written.client_key);
        for (name, other, is_alone) in [
            ("client_certificate", "client_key", certificate.is_some() && secret.is_none()),
            ("client_key", "client_certificate", certificate.is_none() && secret.is_some()),
        ] {
            if is_alone {
                self.fault(key(name), format!("there is no `{other}` that belongs to it"), PEM);
            }
        }
        let identity = certificate.as_ref().zip(secret.as_ref());
        let files = TlsFiles {
            ca: written.ca.as_ref().map(PathBuf::from),
            identity: identity
                .map(|(certificates, key)| Identity { certificates: certificates.into(), key: key.into() }),
        };
        if files == TlsFiles::default() {
            return (Tls::public(), named);
        }
        let keys =
            [(key("ca"), &written.ca), (key("client_certificate"), certificate), (key("client_key"), secret)];
        let keys: Vec<(&str, &str)> =
            keys.iter().filter_map(|(key, file)| Some((key.as_str(), file.as_deref()?))).collect();
        let tls = self.secured(&keys, &files, &mut named);
        (tls, named)
    }

    /// Reads files by the keys that name them. One that cannot be used is noted.
    pub(super) fn secured(&mut self, keys: &[(&str, &str)], files: &TlsFiles, named: &mut Named) -> Tls {
        let noted = self.faults.len();
        for (key, file) in keys {
            self.named(key, file, PEM, named);
        }
        if self.faults.len() > noted {
            return Tls::public();
        }
        match (self.world.tls)(files) {
            Ok(tls) => tls,
            Err(error) => {
                let blamed = match &error {
                    TlsError::Unreadable { file, .. } | TlsError::Unusable { file, .. } => file,
                    TlsError::NoCertificate(file) | TlsError::NoKey(file) => file,
                };
                let key = keys.iter().find(|(_, file)| Path::new(file) == blamed);
                self.fault(key.map_or("", |(key, _)| key), error.to_string(), PEM);
                Tls::public()
            }
        }
    }

    /// What is in a file that is followed from now on.
    pub(super) fn named(&mut self, key: &str, file: &str, remedy: &str, named: &mut Named) -> Option<String> {
        match (self.world.read)(file.as_ref()) {
            Ok(text) => {
                named.push((file.into(), Sha256::digest(text.as_bytes()).into()));
                Some(text)
            }
            Err(error) => {
                self.fault(key, format!("{file} cannot be read: {error}"), remedy);
                None
            }
        }
    }
}
