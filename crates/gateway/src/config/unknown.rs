//! Keys that nobody would read: each is an error, with a guess what was meant.

use serde_json::Value;
use toml::de::{DeArray, DeTable, DeValue};

use super::fault::Fault;
use super::schema;
use super::tree::Tree;

/// How alike a name has to be for a guess, from 0 to 1.
const ALIKE: f64 = 0.8;

pub(crate) fn keys(tree: &Tree<'_>, schema: &Value) -> Vec<Fault> {
    let mut search = Search { tree, schema, faults: Vec::new() };
    search.table(tree.root(), schema, "");
    search.faults
}

struct Search<'a> {
    tree: &'a Tree<'a>,
    schema: &'a Value,
    faults: Vec<Fault>,
}

impl Search<'_> {
    fn table(&mut self, table: &DeTable<'_>, node: &Value, path: &str) {
        let Some(known) = schema::keys(self.schema, node) else { return };
        for (name, value) in table {
            let key = if path.is_empty() {
                name.get_ref().to_string()
            } else {
                format!("{path}.{}", name.get_ref())
            };
            match schema::property(self.schema, node, name.get_ref()) {
                Some(node) => self.value(value.get_ref(), node, &key),
                None => self.faults.push(Fault {
                    place: self.tree.place(name.span().start),
                    key,
                    what: "there is no such key".into(),
                    remedy: self.guess(name.get_ref(), &known),
                }),
            }
        }
    }

    fn value(&mut self, value: &DeValue<'_>, node: &Value, path: &str) {
        match value {
            DeValue::Table(table) => self.table(table, node, path),
            DeValue::Array(array) => self.array(array, node, path),
            _ => {}
        }
    }

    fn array(&mut self, array: &DeArray<'_>, node: &Value, path: &str) {
        let Some(items) = schema::items(self.schema, node) else { return };
        for (index, item) in array.iter().enumerate() {
            self.value(item.get_ref(), items, &format!("{path}[{index}]"));
        }
    }

    fn guess(&self, name: &str, known: &[&str]) -> String {
        if let Some(table) = self.table_with(name) {
            return format!("`{name}` is a key of `{table}`");
        }
        let alike = |known: &&str| strsim::jaro_winkler(name, known);
        let nearest = known.iter().max_by(|a, b| alike(a).total_cmp(&alike(b)));
        if let Some(nearest) = nearest.filter(|nearest| alike(nearest) >= ALIKE) {
            return format!("did you mean `{nearest}`?");
        }
        format!("one of {}; `steadfast config schema` describes them", known.join(", "))
    }

    /// The right name in the wrong table.
    fn table_with(&self, name: &str) -> Option<String> {
        let root = schema::keys(self.schema, self.schema)?;
        if root.contains(&name) {
            return Some("the top of the file".into());
        }
        let endpoint = schema::property(self.schema, self.schema, "defaults")?;
        let homes = [(self.schema, ""), (endpoint, "endpoint")];
        if schema::keys(self.schema, endpoint)?.contains(&name) {
            return Some("[[endpoint]]".into());
        }
        homes.into_iter().find_map(|(node, home)| {
            schema::keys(self.schema, node)?.into_iter().find_map(|table| {
                let inner = schema::property(self.schema, node, table)?;
                let is_there = schema::keys(self.schema, inner)?.contains(&name);
                let dot = if home.is_empty() { "" } else { "." };
                is_there.then(|| format!("[{home}{dot}{table}]"))
            })
        })
    }
}
