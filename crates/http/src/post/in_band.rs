//! Refusals with status 200, for clients that give a server up when they get another status.

use http::{Response, StatusCode};
use steadfast_engine::Facts;
use steadfast_wire::params::ClientInfo;
use steadfast_wire::{Reason, RequestId};

use super::{Endpoint, Problem, ResponseBody, empty};
use crate::quirks::{Agent, Effect, Quirk};

impl Endpoint {
    /// Refuses a request of a session in band if its client needs that, and by status otherwise.
    pub(super) fn refuse_in_session(
        &self,
        problem: Problem,
        id: Option<&RequestId>,
        session: &Facts,
    ) -> Result<Response<ResponseBody>, Problem> {
        if !may_be_in_band(problem.reason, id) {
            return Err(problem);
        }
        match self.config.quirks.in_session(Effect::RefuseInBand, session) {
            Some(quirk) => Ok(in_band(problem, id, quirk)),
            None => Err(problem),
        }
    }

    /// Refuses `initialize` in band if its client needs that, and by status otherwise.
    pub(super) fn refuse_initialize(
        &self,
        problem: Problem,
        id: &RequestId,
        client: &ClientInfo<'_>,
    ) -> Result<Response<ResponseBody>, Problem> {
        let mut quirks = self.config.quirks.of(client, Agent::Named);
        match quirks.find(|quirk| quirk.effect == Effect::RefuseInBand) {
            Some(quirk) if may_be_in_band(problem.reason, Some(id)) => Ok(in_band(problem, Some(id), quirk)),
            _ => Err(problem),
        }
    }
}

/// Returns true for refusals that are about load or a fault of the endpoint, and for answers that
/// came too late. Refusals about identity, sessions and duplicate ids keep their status.
fn may_be_in_band(reason: Reason, id: Option<&RequestId>) -> bool {
    match reason {
        Reason::OverLimit
        | Reason::AtCapacity
        | Reason::Draining
        | Reason::LeaseMoved
        | Reason::StoreUnavailable
        | Reason::OutcomeUnknown => id.is_some(),
        // The server has withdrawn its request, so nothing waits for the answer.
        Reason::UnknownServerRequest => id.is_none(),
        _ => false,
    }
}

fn in_band(mut problem: Problem, id: Option<&RequestId>, quirk: &Quirk) -> Response<ResponseBody> {
    let (status, reason) = (problem.status.as_u16(), &problem.error.message);
    tracing::debug!(status, reason, quirk = quirk.effect.as_str(), "refused in band");
    let Some(id) = id else { return quirk.mark(empty(StatusCode::ACCEPTED)) };
    problem.status = StatusCode::OK;
    // Refusals by status have no data, because their status says whether to retry.
    let reason = problem.reason;
    problem.error.data.get_or_insert_with(|| reason.data(true, ""));
    quirk.mark(problem.with_id(Some(id)).into_response())
}
