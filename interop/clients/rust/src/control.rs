//! The control endpoint of the driver. `interop/driver/src/clients/control.rs` documents its
//! requests.

use reqwest::Method;
use serde_json::Value;

#[derive(Debug)]
pub(crate) struct Control {
    http: reqwest::Client,
    url: String,
}

impl Control {
    pub(crate) fn new(url: String) -> Self {
        Self { http: reqwest::Client::new(), url }
    }

    /// Cuts the connection of the next call after this many events, and those that resume it.
    pub(crate) async fn cut(&self, after: &str) -> Result<(), String> {
        self.request(Method::POST, &format!("/cut?after={after}")).await.map(drop)
    }

    /// Succeeds if the call was resumed where it was cut and answered once.
    pub(crate) async fn verdict(&self) -> Result<String, String> {
        let verdict = self.request(Method::GET, "/cut").await?;
        let detail = verdict["detail"].as_str().unwrap_or_default().to_owned();
        if verdict["ok"] == true { Ok(detail) } else { Err(detail) }
    }

    /// Returns the last call.
    pub(crate) async fn call(&self) -> Result<Value, String> {
        self.request(Method::GET, "/call").await
    }

    /// Kills the server and starts it again.
    pub(crate) async fn restart(&self) -> Result<(), String> {
        let response = self.request(Method::POST, "/restart").await?;
        if response["ok"] == true { Ok(()) } else { Err(response.to_string()) }
    }

    async fn request(&self, verb: Method, path: &str) -> Result<Value, String> {
        let request = self.http.request(verb, format!("{}{path}", self.url));
        let response = request.send().await.map_err(|error| error.to_string())?;
        response.json().await.map_err(|error| error.to_string())
    }
}
