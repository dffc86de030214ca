//! Finding the annotations of a tool's input schema, and what is wrong with them.

use serde_json::{Map, Value};

use super::{ANNOTATION, Annotation, BadAnnotation, MAX_ANNOTATIONS, header_name};

/// Members that hold data rather than schemas, whatever they contain.
const DATA: &[&str] = &["const", "default", "enum", "examples"];
/// Members that hold schemas by name, so that a name which looks like an annotation is none.
const NAMED: &[&str] = &["$defs", "definitions", "dependentSchemas", "patternProperties"];

/// The parameters that a tool's input schema wants mirrored, in the order of the schema's members.
///
/// One bad annotation makes the tool unusable: a client must not call it. A server whose own tool it is can do no
/// better than not to check its parameters.
pub fn annotations(schema: &Value) -> Result<Vec<Annotation>, BadAnnotation> {
    schema.as_object().map_or_else(|| Ok(Vec::new()), annotations_of)
}

/// The same for a schema that is known to be an object.
pub fn annotations_of(schema: &Map<String, Value>) -> Result<Vec<Annotation>, BadAnnotation> {
    let mut found = Vec::new();
    on_the_chain(schema, &mut Vec::new(), &mut found)?;
    Ok(found)
}

/// Looks at a schema that `properties` alone lead to.
fn on_the_chain(
    schema: &Map<String, Value>,
    path: &mut Vec<String>,
    found: &mut Vec<Annotation>,
) -> Result<(), BadAnnotation> {
    if let Some(annotation) = schema.get(ANNOTATION) {
        found.push(checked(annotation, schema, path, found)?);
    }
    for (member, value) in schema {
        match (member.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                for (name, property) in properties {
                    let Value::Object(property) = property else { continue };
                    path.push(name.clone());
                    on_the_chain(property, path, found)?;
                    path.pop();
                }
            }
            (ANNOTATION | "properties", _) => {}
            (member, value) => off_the_chain(member, value, path)?,
        }
    }
    Ok(())
}

/// Refuses any annotation in a member that is no step of the chain.
fn off_the_chain(member: &str, value: &Value, path: &[String]) -> Result<(), BadAnnotation> {
    if DATA.contains(&member) {
        return Ok(());
    }
    let is_named = member == "properties" || NAMED.contains(&member);
    match value {
        Value::Object(schemas) if is_named => {
            schemas.values().try_for_each(|schema| off_the_chain("", schema, path))
        }
        Value::Object(schema) if schema.contains_key(ANNOTATION) => {
            Err(BadAnnotation::Unreachable { at: path.join(".") })
        }
        Value::Object(schema) => {
            schema.iter().try_for_each(|(member, value)| off_the_chain(member, value, path))
        }
        Value::Array(list) => list.iter().try_for_each(|schema| off_the_chain("", schema, path)),
        _ => Ok(()),
    }
}

fn checked(
    annotation: &Value,
    schema: &Map<String, Value>,
    path: &[String],
    others: &[Annotation],
) -> Result<Annotation, BadAnnotation> {
    let at = || path.join(".");
    let Value::String(name) = annotation else { return Err(BadAnnotation::NotText { at: at() }) };
    if name.is_empty() {
        return Err(BadAnnotation::Empty { at: at() });
    }
    if !name.bytes().all(is_token) {
        return Err(BadAnnotation::NotAToken { at: at() });
    }
    let is_primitive =
        matches!(schema.get("type").and_then(Value::as_str), Some("string" | "integer" | "boolean"));
    if path.is_empty() || !is_primitive {
        return Err(BadAnnotation::NotPrimitive { at: at() });
    }
    let header = header_name(name);
    if others.iter().any(|other| other.header == header) {
        return Err(BadAnnotation::Repeated { at: at() });
    }
    if others.len() == MAX_ANNOTATIONS {
        return Err(BadAnnotation::TooMany);
    }
    Ok(Annotation { header, path: path.to_vec() })
}

/// The characters of a header's name, as RFC 9110 has them.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
