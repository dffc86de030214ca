//! The stage that the runner has set: what it can be asked for is in `xtask/src/interop/control.rs`.

use reqwest::Method;
use serde_json::Value;

#[derive(Debug)]
pub(crate) struct Stage {
    http: reqwest::Client,
    url: String,
}

impl Stage {
    pub(crate) fn new(url: String) -> Self {
        Self { http: reqwest::Client::new(), url }
    }

    /// Cuts the connection of the next call after so many events, and those that resume it.
    pub(crate) async fn cut(&self, after: &str) -> Result<(), String> {
        self.ask(Method::POST, &format!("/cut?after={after}")).await.map(drop)
    }

    /// Whether the call was resumed where it was cut and answered once.
    pub(crate) async fn verdict(&self) -> Result<String, String> {
        let verdict = self.ask(Method::GET, "/cut").await?;
        let detail = verdict["detail"].as_str().unwrap_or_default().to_owned();
        if verdict["ok"] == true { Ok(detail) } else { Err(detail) }
    }

    /// The last call.
    pub(crate) async fn call(&self) -> Result<Value, String> {
        self.ask(Method::GET, "/call").await
    }

    /// Kills the server and starts it again.
    pub(crate) async fn restart(&self) -> Result<(), String> {
        let answer = self.ask(Method::POST, "/restart").await?;
        if answer["ok"] == true { Ok(()) } else { Err(answer.to_string()) }
    }

    async fn ask(&self, verb: Method, path: &str) -> Result<Value, String> {
        let request = self.http.request(verb, format!("{}{path}", self.url));
        let response = request.send().await.map_err(|error| error.to_string())?;
        response.json().await.map_err(|error| error.to_string())
    }
}
