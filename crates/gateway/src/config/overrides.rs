//! What goes before the file: variables of the environment, and flags.

use std::collections::BTreeMap;

use toml::{Table, Value};

/// In front of every variable that sets a key. What follows is the key's path, with two underscores between a table and
/// its key: `STEADFAST__ADMIN__LISTEN` is `listen` of `[admin]`.
const PREFIX: &str = "STEADFAST__";

/// One value that was not written in the file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Override {
    /// Who says so: the name of a variable or of a flag.
    pub(crate) origin: String,
    pub(crate) path: Vec<String>,
    pub(crate) value: Value,
}

impl Override {
    pub(crate) fn new(origin: impl Into<String>, path: &[&str], value: impl Into<Value>) -> Self {
        Self {
            origin: origin.into(),
            path: path.iter().map(|step| (*step).to_owned()).collect(),
            value: value.into(),
        }
    }

    pub(crate) fn key(&self) -> String {
        self.path.join(".")
    }

    /// Puts the value in its place, and makes the tables that lead there.
    pub(crate) fn put(&self, root: &mut Table) {
        let Some((last, tables)) = self.path.split_last() else { return };
        let mut table = root;
        for step in tables {
            let slot = table.entry(step.clone()).or_insert_with(|| Value::Table(Table::new()));
            if !slot.is_table() {
                *slot = Value::Table(Table::new());
            }
            let Value::Table(next) = slot else { return };
            table = next;
        }
        table.insert(last.clone(), self.value.clone());
    }

    /// The document that says nothing else.
    pub(crate) fn alone(&self) -> Table {
        let mut root = Table::new();
        self.put(&mut root);
        root
    }
}

pub(crate) fn of_environment(variables: &BTreeMap<String, String>) -> Vec<Override> {
    let ours = variables.iter().filter_map(|(name, text)| {
        let path = name.strip_prefix(PREFIX)?.to_ascii_lowercase();
        let path = path.split("__").map(str::to_owned).collect();
        Some(Override { origin: name.clone(), path, value: read(text) })
    });
    ours.collect()
}

/// Numbers, `true`, `false` and lists are what they look like; everything else is text.
fn read(text: &str) -> Value {
    let looks_like_more =
        text.parse::<i64>().is_ok() || matches!(text, "true" | "false") || text.starts_with('[');
    let read = || toml::from_str::<Table>(&format!("x = {text}")).ok()?.remove("x");
    looks_like_more.then(read).flatten().unwrap_or_else(|| Value::String(text.to_owned()))
}
