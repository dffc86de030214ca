//! Checks that the client has declared the capabilities that an input request needs.
#![expect(
    deprecated,
    reason = "sampling and roots are deprecated; clients that declare them still get requests"
)]

use rmcp::ErrorData;
use rmcp::model::{
    ClientCapabilities, CreateMessageRequestParams, ElicitRequestParams, ElicitationCapability, InputRequest,
    SamplingCapability,
};

/// Fails with `-32021`, which names the missing capabilities, unless `declared` covers every
/// request: sampling (with tools, if the request has tools), elicitation (in the request's mode)
/// and roots.
pub(crate) fn check<'a>(
    requests: impl Iterator<Item = &'a InputRequest>,
    declared: &ClientCapabilities,
) -> Result<(), ErrorData> {
    let mut missing = ClientCapabilities::default();
    for request in requests {
        match request {
            InputRequest::CreateMessage(request) => check_sampling(&request.params, declared, &mut missing),
            InputRequest::Elicitation(request) => check_elicitation(&request.params, declared, &mut missing),
            InputRequest::ListRoots(_) if declared.roots.is_none() => {
                missing.roots = Some(Default::default());
            }
            _ => {}
        }
    }
    if missing == ClientCapabilities::default() {
        Ok(())
    } else {
        Err(ErrorData::missing_required_client_capability(missing))
    }
}

fn check_sampling(
    params: &CreateMessageRequestParams,
    declared: &ClientCapabilities,
    missing: &mut ClientCapabilities,
) {
    let needs_tools = params.tools.is_some() || params.tool_choice.is_some();
    match &declared.sampling {
        Some(declared) if !needs_tools || declared.tools.is_some() => {}
        _ => {
            let sampling = missing.sampling.get_or_insert_with(SamplingCapability::default);
            if needs_tools {
                sampling.tools = Some(Default::default());
            }
        }
    }
}

fn check_elicitation(
    params: &ElicitRequestParams,
    declared: &ClientCapabilities,
    missing: &mut ClientCapabilities,
) {
    let declared = declared.elicitation.as_ref();
    let missing = &mut missing.elicitation;
    match params {
        ElicitRequestParams::UrlElicitationParams { .. } => {
            if declared.is_none_or(|declared| declared.url.is_none()) {
                missing.get_or_insert_with(ElicitationCapability::default).url = Some(Default::default());
            }
        }
        _ => {
            // By the specification, a client that names no mode supports forms.
            let has_forms =
                |declared: &ElicitationCapability| declared.form.is_some() || declared.url.is_none();
            if !declared.is_some_and(has_forms) {
                missing.get_or_insert_with(ElicitationCapability::default).form = Some(Default::default());
            }
        }
    }
}
