//! How a call ended, judged by the answer of the client, the record of the wire and the number of
//! executions at the server.

use std::fmt;

use super::process::Answer;

/// Ordered: the worst outcome of several calls is the largest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Result,
    /// The result of a tool that may be executed twice, and was.
    Repeated,
    /// The gateway told the client that there is no result, and why.
    Error(String),
    /// The client reports an error of its own, and the server did not execute the call.
    NotExecuted,
    /// The client reports an error of its own, and the server executed the call.
    Lost,
    /// The client got no answer.
    Hung,
    /// The client got the result of another call.
    Crossed,
    /// A tool that may not be executed twice was.
    Doubled,
    /// The client did not connect.
    NotConnected,
    NotApplicable,
    /// The gateway cannot do this yet.
    NotYet,
}

/// May the gateway execute the tool again?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    Allowed,
    Forbidden,
}

impl Outcome {
    /// `reason` is the reason of the error that the gateway sent for the call.
    pub(super) fn judge(
        key: &str,
        answer: Option<&Answer>,
        reason: Option<String>,
        executions: usize,
        repeat: Repeat,
    ) -> Self {
        match answer {
            _ if executions > 1 && repeat == Repeat::Forbidden => Self::Doubled,
            None => Self::Hung,
            Some(Ok(text)) if text != key || executions == 0 => Self::Crossed,
            Some(Ok(_)) if executions > 1 => Self::Repeated,
            Some(Ok(_)) => Self::Result,
            Some(Err(_)) => match reason {
                Some(reason) => Self::Error(reason),
                None if executions == 0 => Self::NotExecuted,
                None => Self::Lost,
            },
        }
    }

    /// Returns true if the outcome breaks a promise of the gateway.
    pub(super) fn is_failure(&self) -> bool {
        match self {
            Self::Result | Self::Repeated | Self::Error(_) | Self::NotApplicable | Self::NotYet => false,
            Self::NotExecuted
            | Self::Lost
            | Self::Hung
            | Self::Crossed
            | Self::Doubled
            | Self::NotConnected => true,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Result => f.write_str("result"),
            Self::Repeated => f.write_str("repeated"),
            Self::Error(reason) => f.write_str(reason),
            Self::NotExecuted => f.write_str("not executed"),
            Self::Lost => f.write_str("lost"),
            Self::Hung => f.write_str("hung"),
            Self::Crossed => f.write_str("crossed"),
            Self::Doubled => f.write_str("doubled"),
            Self::NotConnected => f.write_str("not connected"),
            Self::NotApplicable => f.write_str("–"),
            Self::NotYet => f.write_str("not yet"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes() {
        let check = |answer: Option<Answer>, reason: Option<&str>, executions, repeat, expect: &str| {
            let outcome = Outcome::judge("k", answer.as_ref(), reason.map(str::to_owned), executions, repeat);
            assert_eq!(outcome.to_string(), expect, "{answer:?} {reason:?} {executions}");
        };
        let (right, wrong) = (Some(Ok("k".to_owned())), Some(Ok("other".to_owned())));
        let error = Some(Err("closed".to_owned()));
        check(right.clone(), None, 1, Repeat::Forbidden, "result");
        check(right.clone(), None, 2, Repeat::Allowed, "repeated");
        check(right.clone(), None, 2, Repeat::Forbidden, "doubled");
        check(right, None, 0, Repeat::Forbidden, "crossed");
        check(wrong, None, 1, Repeat::Forbidden, "crossed");
        check(error.clone(), Some("outcome_unknown"), 1, Repeat::Forbidden, "outcome_unknown");
        check(error.clone(), Some("outcome_unknown"), 2, Repeat::Forbidden, "doubled");
        check(error.clone(), None, 1, Repeat::Forbidden, "lost");
        check(error, None, 0, Repeat::Forbidden, "not executed");
        check(None, Some("outcome_unknown"), 1, Repeat::Forbidden, "hung");
        check(None, None, 2, Repeat::Forbidden, "doubled");
    }
}
