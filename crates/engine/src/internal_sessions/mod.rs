//! Sessions that the server itself uses as storage: jobs (of tasks, and of stateless requests), and
//! records of principals.
//!
//! They have a stateless revision, so no client can use them as sessions. Lifecycle listeners and
//! the backend do not receive their events.

mod jobs;
mod principal_record;

use std::sync::Arc;

use steadfast_session::{CALL_SUBJECT, Facts, Principal};

pub(crate) use jobs::FIRST_CALL;
pub use jobs::{CreatedJob, JobStatus};
pub use principal_record::PrincipalRecord;

/// What the outcomes of calls with an idempotency key are about.
const KEY_SUBJECT: &str = "key";

/// Returns the principal of the jobs that stateless requests of `principal` become.
pub(crate) fn call_principal(principal: &Principal) -> Principal {
    principal.about(CALL_SUBJECT)
}

/// Returns the principal of the jobs that hold the outcomes of keyed calls of `principal`.
pub(crate) fn key_principal(principal: &Principal) -> Principal {
    principal.about(KEY_SUBJECT)
}

/// Returns true if the session is a job that stands for a request of a client: a stateless request,
/// or one with an idempotency key. Its call must not be counted beside that request.
pub fn stands_for_request(facts: &Facts) -> bool {
    facts.is_call_job() || facts.revision.is_modern() && facts.principal.subject() == Some(KEY_SUBJECT)
}

/// Returns true if the session is internal.
pub(crate) fn is_internal(facts: &Arc<Facts>) -> bool {
    facts.revision.is_modern()
}
