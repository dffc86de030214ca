//! Checks how an endpoint authenticates its clients.

use std::path::PathBuf;

use http::Uri;
use steadfast_auth::{Algorithm, Keys, PrincipalClaims, Settings, StartError};
use steadfast_client::transport::TlsFiles;

use super::Checks;
use crate::config::config_fault::Position;
use crate::config::file::{Auth, EndpointTable, JwtTable, PrincipalClaim};
use crate::config::plan::{AuthPlan, FileDigests};

impl Checks<'_> {
    pub(super) fn auth(&mut self, at: &str, table: &EndpointTable) -> (AuthPlan, FileDigests) {
        let mut files = FileDigests::default();
        let plan = match table.auth {
            Auth::None => AuthPlan::None,
            Auth::Forward => AuthPlan::Forward,
            Auth::Jwt => AuthPlan::Jwt(Box::new(self.jwt(&format!("{at}.jwt"), &table.jwt, &mut files))),
        };
        (plan, files)
    }

    /// Records a fault for each value that cannot be read, and uses a placeholder instead.
    fn jwt(&mut self, at: &str, jwt: &JwtTable, files: &mut FileDigests) -> Settings {
        let (faults, resource) = (self.faults.len(), self.resource(at, jwt));
        let is_resource_recorded = self.faults.len() > faults;
        let keys = self.jwks(at, jwt, files);
        let mut settings = Settings::new(resource, jwt.issuer.clone().unwrap_or_default(), keys);
        settings.audiences = jwt.audience.all().to_vec();
        settings.scopes.clone_from(&jwt.scopes);
        settings.authorization_servers.clone_from(&jwt.authorization_servers);
        settings.principal = match jwt.principal {
            PrincipalClaim::Subject => PrincipalClaims::Subject,
            PrincipalClaim::SubjectAndClient => PrincipalClaims::SubjectAndClient,
        };
        settings.algorithms = self.algorithms(at, &jwt.algorithms);
        if let Some(ca) = &jwt.jwks_ca {
            let tls_files = TlsFiles { ca: Some(PathBuf::from(ca)), identity: None };
            settings.tls = self.load_tls(&[(&format!("{at}.jwks_ca"), ca)], &tls_files, files);
        }
        for fault in settings.faults() {
            let (key, remedy) = match &fault {
                StartError::Resource(_) if is_resource_recorded => continue,
                StartError::Resource(_) => ("resource", RESOURCE),
                StartError::Issuer => ("issuer", "issuer = \"https://id.example.com\""),
                // `algorithms` has recorded each unknown algorithm.
                StartError::Algorithms if !jwt.algorithms.is_empty() => continue,
                StartError::Algorithms => ("algorithms", "algorithms = [\"RS256\"]"),
                StartError::Scope(_) => ("scopes", "scopes = [\"mcp:use\"]"),
                StartError::KeysUrl(_) | StartError::KeysFile { .. } => ("jwks", JWKS),
            };
            self.jwt_fault(&format!("{at}.{key}"), fault.to_string(), remedy);
        }
        settings
    }

    fn resource(&mut self, at: &str, jwt: &JwtTable) -> Uri {
        let (key, text) = (format!("{at}.resource"), jwt.resource.as_deref());
        match text.map(str::parse) {
            Some(Ok(uri)) => return uri,
            Some(Err(error)) => {
                let what = format!("{:?} is not a URL: {error}", text.unwrap_or_default());
                self.jwt_fault(&key, what, RESOURCE);
            }
            None => self.jwt_fault(&key, "the resource that tokens are for is not set", RESOURCE),
        }
        Uri::default()
    }

    fn jwks(&mut self, at: &str, jwt: &JwtTable, files: &mut FileDigests) -> Keys {
        let key = format!("{at}.jwks");
        let Some(text) = &jwt.jwks else {
            self.jwt_fault(&key, "the key set of the issuer is not set", JWKS);
            return Keys::File(PathBuf::new());
        };
        if !text.contains("://") {
            let content = self.read_watched(&key, text, JWKS, files);
            if let Some(Err(error)) = content.map(|content| Keys::check_file(text.as_ref(), &content)) {
                self.fault(&key, error.to_string(), JWKS);
            }
            return Keys::File(text.into());
        }
        match text.parse::<Uri>() {
            Ok(uri) if uri.authority().is_some_and(|authority| !authority.as_str().contains('@')) => {
                return Keys::Url(uri);
            }
            Ok(_) => self.fault(&key, "the URL of a key set needs a host, and no credentials", JWKS),
            Err(error) => self.fault(&key, format!("{text:?} is not a URL: {error}"), JWKS),
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

    /// There are no flags for `[endpoint.jwt]`, so the remedy for a flag names `--config`.
    fn jwt_fault(&mut self, key: &str, what: impl Into<String>, remedy: &str) {
        let is_by_flag =
            matches!(self.positions.find(key), Position::EnvOrFlag(name) if name.starts_with("--"));
        let remedy = if is_by_flag {
            format!("--config FILE, in which [endpoint.jwt] has {remedy}")
        } else {
            format!("[endpoint.jwt] with {remedy}")
        };
        self.fault(key, what, remedy);
    }
}

const RESOURCE: &str = "resource = \"https://mcp.example.com/mcp\", the URL that clients use";
const JWKS: &str = "jwks = \"https://id.example.com/jwks.json\", or the path of a file";
