//! What a client may be asked for: what it has declared, and nothing else.
#![expect(deprecated, reason = "sampling and roots are deprecated, and still asked of whoever declares them")]

use rmcp::ErrorData;
use rmcp::model::{
    ClientCapabilities, CreateMessageRequestParams, ElicitRequestParams, ElicitationCapability, InputRequest,
    SamplingCapability,
};

/// Whether a client has declared all that it is asked for, down to the mode.
pub(crate) fn check<'a>(
    asked: impl Iterator<Item = &'a InputRequest>,
    declared: &ClientCapabilities,
) -> Result<(), ErrorData> {
    let mut missing = ClientCapabilities::default();
    for request in asked {
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
        Err(ErrorData::missing_required_client_capability(missing))
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
