//! What a handler may ask the client of a stateless request for.
#![expect(deprecated, reason = "sampling and roots are deprecated, and still asked of whoever declares them")]

use rmcp::ErrorData;
use rmcp::model::{
    ClientCapabilities, CreateMessageRequestParams, ElicitRequestParams, ElicitationCapability, InputRequest,
    InputRequiredResult, SamplingCapability,
};
use steadfast_wire::rpc::{self, ErrorObject};

use super::error_object;

/// A client is asked only for what it has declared on this very request, down to the mode.
pub(super) fn check_declared(
    required: &InputRequiredResult,
    declared: &ClientCapabilities,
) -> Result<(), ErrorObject> {
    if required.input_requests.is_none() && required.request_state.is_none() {
        return Err(ErrorObject::new(
            rpc::INTERNAL_ERROR,
            "The handler needs input, and neither asks for it nor gives a state to come back with.",
        ));
    }
    let mut missing = ClientCapabilities::default();
    for request in required.input_requests.iter().flat_map(|requests| requests.values()) {
        match request {
            InputRequest::CreateMessage(request) => sampling(&request.params, declared, &mut missing),
            InputRequest::Elicitation(request) => elicitation(&request.params, declared, &mut missing),
            InputRequest::ListRoots(_) if declared.roots.is_none() => {
                missing.roots = Some(Default::default());
            }
            _ => {}
        }
    }
    if missing == ClientCapabilities::default() {
        Ok(())
    } else {
        Err(error_object(ErrorData::missing_required_client_capability(missing)))
    }
}

fn sampling(
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

fn elicitation(
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
            // A client that names no mode has forms.
            let has_forms =
                |declared: &ElicitationCapability| declared.form.is_some() || declared.url.is_none();
            if !declared.is_some_and(has_forms) {
                missing.get_or_insert_with(ElicitationCapability::default).form = Some(Default::default());
            }
        }
    }
}
