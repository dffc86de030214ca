//! The TOML text as a tree of keys and values with their positions.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::config_fault::Position;

/// The name of a file, its text, and its parsed root table.
pub(crate) struct SourceTree<'a> {
    name: &'a str,
    text: &'a str,
    root: DeTable<'a>,
}

impl<'a> SourceTree<'a> {
    /// Parses the text, and returns every syntax error as well. What could be parsed is in the
    /// tree.
    pub(crate) fn parse(name: &'a str, text: &'a str) -> (Self, Vec<toml::de::Error>) {
        let (root, errors) = DeTable::parse_recoverable(text);
        (Self { name, text, root: root.into_inner() }, errors)
    }

    pub(crate) fn root(&self) -> &DeTable<'a> {
        &self.root
    }

    /// Returns the line and column of a byte offset.
    pub(crate) fn position(&self, offset: usize) -> Position {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
        Position::File { name: self.name.to_owned(), line, column }
    }

    /// Returns the position of the value of a key, or of the innermost table on its path that
    /// exists.
    pub(crate) fn find(&self, key: &str) -> Position {
        let mut at = 0;
        let mut table = Some(&self.root);
        let mut array = None;
        for step in steps(key) {
            let next: Option<&Spanned<DeValue<'_>>> = match step {
                Step::Key(name) => {
                    let entry = table.and_then(|table| table.iter().find(|(key, _)| key.get_ref() == name));
                    entry.map(|(_, value)| value)
                }
                Step::Index(index) => array.and_then(|array: &toml::de::DeArray<'_>| array.get(index)),
            };
            let Some(value) = next else { break };
            at = value.span().start;
            (table, array) = (value.get_ref().as_table(), value.get_ref().as_array());
        }
        self.position(at)
    }

    /// Returns the key whose name or value covers these bytes.
    pub(crate) fn key_at(&self, span: &Range<usize>) -> String {
        let mut key = String::new();
        key_in_table(&self.root, span, &mut key);
        key
    }
}

fn key_in_table(table: &DeTable<'_>, span: &Range<usize>, key: &mut String) {
    for (name, value) in table {
        if covers(&name.span(), span) || contains(value, span) {
            if !key.is_empty() {
                key.push('.');
            }
            key.push_str(name.get_ref());
            key_in_value(value.get_ref(), span, key);
            return;
        }
    }
}

fn key_in_value(value: &DeValue<'_>, span: &Range<usize>, key: &mut String) {
    match value {
        DeValue::Table(table) => key_in_table(table, span, key),
        DeValue::Array(array) => {
            if let Some((index, item)) = array.iter().enumerate().find(|(_, item)| contains(item, span)) {
                key.push_str(&format!("[{index}]"));
                key_in_value(item.get_ref(), span, key);
            }
        }
        _ => {}
    }
}

/// Returns true if the value covers `span`. The span of a table with a header is only the header,
/// so the entries are searched as well.
fn contains(value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> bool {
    covers(&value.span(), span)
        || match value.get_ref() {
            DeValue::Table(table) => {
                table.iter().any(|(name, value)| covers(&name.span(), span) || contains(value, span))
            }
            DeValue::Array(array) => array.iter().any(|item| contains(item, span)),
            _ => false,
        }
}

fn covers(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// Splits `endpoint[0].path` into a key, an index and a key.
fn steps(key: &str) -> impl Iterator<Item = Step<'_>> {
    key.split('.').filter(|part| !part.is_empty()).flat_map(|part| {
        let mut parts = part.split('[');
        let name = parts.next().filter(|name| !name.is_empty()).map(Step::Key);
        let indices = parts.filter_map(|index| index.strip_suffix(']')?.parse().ok().map(Step::Index));
        name.into_iter().chain(indices)
    })
}
