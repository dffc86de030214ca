//! The script "demo": one client. Its connections are cut, and its server is killed.

mod client;
mod handler;
mod script;

use crate::control::Control;
use crate::{Outcome, Verdict, with_limit};

use client::TestClient;

/// Runs all steps and reports each.
pub(crate) async fn run(url: &str, control: &Control, report: impl Fn(&str, Outcome) -> Verdict) -> Verdict {
    let mut client = match TestClient::connect(url).await {
        Ok(client) => client,
        Err(error) => return report("initialize", Err(error.to_string())),
    };
    let mut verdict = Verdict::Passed;
    for step in script::STEPS {
        verdict = verdict.and(report(step, with_limit(script::run(step, &mut client, control)).await));
    }
    verdict
}
