//! The file as a tree of keys and values that remember where they were written.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::Place;

/// A file's name, its text, and what was read of it.
pub(crate) struct Tree<'a> {
    name: &'a str,
    text: &'a str,
    root: DeTable<'a>,
}

impl<'a> Tree<'a> {
    /// With every mistake in the writing itself, which the rest of the file may survive.
    pub(crate) fn read(name: &'a str, text: &'a str) -> (Self, Vec<toml::de::Error>) {
        let (root, errors) = DeTable::parse_recoverable(text);
        (Self { name, text, root: root.into_inner() }, errors)
    }

    pub(crate) fn root(&self) -> &DeTable<'a> {
        &self.root
    }

    /// Where an offset of the text is.
    pub(crate) fn place(&self, offset: usize) -> Place {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
        Place::File { name: self.name.to_owned(), line, column }
    }

    /// Where a key's value is written, or as much of the way there as is written.
    pub(crate) fn find(&self, key: &str) -> Place {
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
        self.place(at)
    }

    /// The key whose name or value is written at these bytes.
    pub(crate) fn key_at(&self, span: &Range<usize>) -> String {
        let mut key = String::new();
        key_in_table(&self.root, span, &mut key);
        key
    }
}

fn key_in_table(table: &DeTable<'_>, span: &Range<usize>, key: &mut String) {
    for (name, value) in table {
        if covers(&name.span(), span) || holds(value, span) {
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
            if let Some((index, item)) = array.iter().enumerate().find(|(_, item)| holds(item, span)) {
                key.push_str(&format!("[{index}]"));
                key_in_value(item.get_ref(), span, key);
            }
        }
        _ => {}
    }
}

/// A table with a header covers nothing but its header, so its entries are asked, too.
fn holds(value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> bool {
    covers(&value.span(), span)
        || match value.get_ref() {
            DeValue::Table(table) => {
                table.iter().any(|(name, value)| covers(&name.span(), span) || holds(value, span))
            }
            DeValue::Array(array) => array.iter().any(|item| holds(item, span)),
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

/// `endpoint[0].path` is a key, an index and a key.
fn steps(key: &str) -> impl Iterator<Item = Step<'_>> {
    key.split('.').filter(|part| !part.is_empty()).flat_map(|part| {
        let mut parts = part.split('[');
        let name = parts.next().filter(|name| !name.is_empty()).map(Step::Key);
        let indices = parts.filter_map(|index| index.strip_suffix(']')?.parse().ok().map(Step::Index));
        name.into_iter().chain(indices)
    })
}
