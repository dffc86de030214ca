//! Finds and checks the `x-mcp-header` annotations in a tool's input schema.

use serde_json::{Map, Value};

use super::{ANNOTATION, Annotation, BadAnnotation, MAX_ANNOTATIONS, header_name};

/// Schema members that hold data, not schemas.
const DATA_MEMBERS: &[&str] = &["const", "default", "enum", "examples"];
/// Schema members that hold schemas by name. There a key that equals the annotation is only a name.
const NAMED_SCHEMAS: &[&str] = &["$defs", "definitions", "dependentSchemas", "patternProperties"];

/// Returns the annotated parameters of a tool's input schema, in the order of the schema's members.
///
/// On error a client must not call the tool. A server that offers such a tool does not check its
/// parameter headers.
pub fn annotations(schema: &Value) -> Result<Vec<Annotation>, BadAnnotation> {
    schema.as_object().map_or_else(|| Ok(Vec::new()), annotations_of_object)
}

/// Returns the annotated parameters of a schema that is an object, see [`annotations`].
pub fn annotations_of_object(schema: &Map<String, Value>) -> Result<Vec<Annotation>, BadAnnotation> {
    let mut found = Vec::new();
    collect_reachable(schema, &mut Vec::new(), &mut found)?;
    Ok(found)
}

/// Collects the annotations of a schema that is reached through `properties` alone.
fn collect_reachable(
    schema: &Map<String, Value>,
    path: &mut Vec<String>,
    found: &mut Vec<Annotation>,
) -> Result<(), BadAnnotation> {
    if let Some(annotation) = schema.get(ANNOTATION) {
        found.push(check_annotation(annotation, schema, path, found)?);
    }
    for (member, value) in schema {
        match (member.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                for (name, property) in properties {
                    let Value::Object(property) = property else { continue };
                    path.push(name.clone());
                    collect_reachable(property, path, found)?;
                    path.pop();
                }
            }
            (ANNOTATION | "properties", _) => {}
            (member, value) => reject_unreachable(member, value, path)?,
        }
    }
    Ok(())
}

/// Refuses annotations in all other members, because no path of property names leads to their
/// values.
fn reject_unreachable(member: &str, value: &Value, path: &[String]) -> Result<(), BadAnnotation> {
    if DATA_MEMBERS.contains(&member) {
        return Ok(());
    }
    let is_named = member == "properties" || NAMED_SCHEMAS.contains(&member);
    match value {
        Value::Object(schemas) if is_named => {
            schemas.values().try_for_each(|schema| reject_unreachable("", schema, path))
        }
        Value::Object(schema) if schema.contains_key(ANNOTATION) => {
            Err(BadAnnotation::Unreachable { at: path.join(".") })
        }
        Value::Object(schema) => {
            schema.iter().try_for_each(|(member, value)| reject_unreachable(member, value, path))
        }
        Value::Array(list) => list.iter().try_for_each(|schema| reject_unreachable("", schema, path)),
        _ => Ok(()),
    }
}

fn check_annotation(
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

/// Returns true for the characters that RFC 9110 allows in header names.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
