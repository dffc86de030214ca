//! The same for who may use an endpoint.

use std::path::PathBuf;

use http::Uri;
use steadfast_auth::{Algorithm, Keys, Settings, StartError};
use steadfast_client::transport::TlsFiles;

use super::Checks;
use crate::config::auth::{Auth, Jwt};
use crate::config::endpoint::Endpoint;
use crate::config::fault::Place;
use crate::config::plan::{AuthPlan, Named};

impl Checks<'_> {
    pub(super) fn auth(&mut self, at: &str, written: &Endpoint) -> (AuthPlan, Named) {
        let mut named = Named::default();
        let plan = match written.auth {
            Auth::None => AuthPlan::None,
            Auth::Forward => AuthPlan::Forward,
            Auth::Jwt => AuthPlan::Jwt(Box::new(self.jwt(&format!("{at}.jwt"), &written.jwt, &mut named))),
        };
        (plan, named)
    }

    /// What cannot be read is noted, and something else is in its place.
    fn jwt(&mut self, at: &str, jwt: &Jwt, named: &mut Named) -> Settings {
        let (noted, resource) = (self.faults.len(), self.resource(at, jwt));
        let is_resource_noted = self.faults.len() > noted;
        let keys = self.keys(at, jwt, named);
        let mut settings = Settings::new(resource, jwt.issuer.clone().unwrap_or_default(), keys);
        jwt.apply(&mut settings);
        settings.algorithms = self.algorithms(at, &jwt.algorithms);
        if let Some(ca) = &jwt.keys_ca {
            let files = TlsFiles { ca: Some(PathBuf::from(ca)), identity: None };
            settings.tls = self.secured(&[(&format!("{at}.keys_ca"), ca)], &files, named);
        }
        for (key, time) in [
            ("keys_fresh", jwt.keys_fresh),
            ("keys_pause", jwt.keys_pause),
            ("keys_timeout", jwt.keys_timeout),
        ] {
            self.not_zero(format!("{at}.{key}"), time);
        }
        for fault in settings.faults() {
            let (key, remedy) = match &fault {
                StartError::Resource(_) if is_resource_noted => continue,
                StartError::Resource(_) => ("resource", RESOURCE),
                StartError::Issuer => ("issuer", "issuer = \"https://id.example.com\""),
                // Each that cannot be read was noted.
                StartError::Algorithms if !jwt.algorithms.is_empty() => continue,
                StartError::Algorithms => ("algorithms", "algorithms = [\"RS256\"]"),
                StartError::Scope(_) => ("scopes", "scopes = [\"mcp:use\"]"),
                StartError::KeysUrl(_) | StartError::KeysFile { .. } => ("keys", KEYS),
            };
            self.jwt_fault(&format!("{at}.{key}"), fault.to_string(), remedy);
        }
        settings
    }

    fn resource(&mut self, at: &str, jwt: &Jwt) -> Uri {
        let (key, text) = (format!("{at}.resource"), jwt.resource.as_deref());
        match text.map(str::parse) {
            Some(Ok(uri)) => return uri,
            Some(Err(error)) => {
                let what = format!("{:?} is no address: {error}", text.unwrap_or_default());
                self.jwt_fault(&key, what, RESOURCE);
            }
            None => self.jwt_fault(&key, "it is not said what tokens have to be for", RESOURCE),
        }
        Uri::default()
    }

    fn keys(&mut self, at: &str, jwt: &Jwt, named: &mut Named) -> Keys {
        let key = format!("{at}.keys");
        let Some(text) = &jwt.keys else {
            self.jwt_fault(&key, "it is not said where the issuer's keys are", KEYS);
            return Keys::File(PathBuf::new());
        };
        if !text.contains("://") {
            let read = self.named(&key, text, KEYS, named);
            if let Some(Err(error)) = read.map(|read| Keys::check_file(text.as_ref(), &read)) {
                self.fault(&key, error.to_string(), KEYS);
            }
            return Keys::File(text.into());
        }
        match text.parse::<Uri>() {
            Ok(uri) if uri.authority().is_some_and(|authority| !authority.as_str().contains('@')) => {
                return Keys::Url(uri);
            }
            Ok(_) => self.fault(&key, "the address of keys needs a host, and no credentials", KEYS),
            Err(error) => self.fault(&key, format!("{text:?} is no address: {error}"), KEYS),
        }
        Keys::File(PathBuf::new())
    }

    fn algorithms(&mut self, at: &str, names: &[String]) -> Vec<Algorithm> {
        let mut found = Vec::new();
        for (index, name) in names.iter().enumerate() {
            match name.parse() {
                Ok(algorithm) => found.push(algorithm),
                Err(error) => {
                    let what = format!("{name:?}: {error}");
                    self.fault(format!("{at}.algorithms[{index}]"), what, "algorithms = [\"RS256\"]");
                }
            }
        }
        found
    }

    /// There are no flags for any of this.
    fn jwt_fault(&mut self, key: &str, what: impl Into<String>, remedy: &str) {
        let is_by_flag = matches!(self.written.place(key), Place::Named(name) if name.starts_with("--"));
        let remedy = if is_by_flag {
            format!("--config FILE, in which [endpoint.jwt] has {remedy}")
        } else {
            format!("[endpoint.jwt] with {remedy}")
        };
        self.fault(key, what, remedy);
    }
}

const RESOURCE: &str = "resource = \"https://mcp.example.com/mcp\", the address that clients use";
const KEYS: &str = "keys = \"https://id.example.com/jwks.json\", or the path of a file";
