//! The behaviour tests of the library, with a gateway between the client and the server.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

#[path = "../../steadfast/tests/behaviour/concurrent_calls.rs"]
mod concurrent_calls;
#[path = "../../steadfast/tests/behaviour/duplicate_ids.rs"]
mod duplicate_ids;
#[path = "../../steadfast/tests/behaviour/endings.rs"]
mod endings;
#[path = "../../steadfast/tests/behaviour/expiry.rs"]
mod expiry;
#[path = "../../steadfast/tests/behaviour/hang_ups.rs"]
mod hang_ups;
#[path = "../../steadfast/tests/behaviour/lifecycle.rs"]
mod lifecycle;
#[path = "../../steadfast/tests/behaviour/restart.rs"]
mod restart;
#[path = "../../steadfast/tests/behaviour/resume.rs"]
mod resume;
#[path = "../../steadfast/tests/behaviour/asks/mod.rs"]
mod server_requests;
#[path = "../../steadfast/tests/behaviour/standalone.rs"]
mod standalone;

#[path = "through/call_jobs.rs"]
mod call_jobs;
