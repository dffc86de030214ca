//! A parser for the part of YAML that the examples use. Unknown syntax and duplicate keys are
//! errors.

use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Yaml {
    Text(String),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
}

impl Yaml {
    /// Returns the value at a path of keys; a number is an index of a list.
    pub(crate) fn at(&self, path: &str) -> Option<&Self> {
        path.split('.').try_fold(self, |from, key| match from {
            Self::Map(pairs) => pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            Self::List(items) => items.get(key.parse::<usize>().ok()?),
            Self::Text(_) => None,
        })
    }

    pub(crate) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }
}

/// The documents of a file.
pub(crate) fn parse(text: &str) -> Result<Vec<Yaml>, String> {
    let mut documents = vec![Vec::new()];
    for (number, line) in (1..).zip(text.lines()) {
        if line == "---" {
            documents.push(Vec::new());
            continue;
        }
        if line.contains('\t') {
            return Err(format!("line {number}: a tab"));
        }
        let indent = line.len() - line.trim_start().len();
        documents.last_mut().expect("one at least").push(Line {
            number,
            indent,
            text: line[indent..].to_owned(),
        });
    }
    let mut anchors = BTreeMap::new();
    let read = |lines| {
        let mut reader = Reader { lines, at: 0, anchors: &mut anchors };
        let document = reader.block(0)?;
        match reader.peek() {
            None => Ok(document),
            Some(line) => Err(line.fault("unexpected indentation")),
        }
    };
    documents.into_iter().map(read).collect()
}

#[derive(Clone, Debug)]
struct Line {
    number: usize,
    indent: usize,
    text: String,
}

impl Line {
    fn fault(&self, what: &str) -> String {
        format!("line {}: {what}: {}", self.number, self.text)
    }

    fn is_item(&self) -> bool {
        self.text.starts_with("- ")
    }

    /// Splits a line into a key and the text after its colon.
    fn pair(&self) -> Option<(String, String)> {
        let (key, rest) = self.text.split_once(": ").or_else(|| Some((self.text.strip_suffix(':')?, "")))?;
        let is_plain = !key.is_empty() && !key.contains(['"', '\'', '{', '[', ' ']);
        is_plain.then(|| (key.to_owned(), rest.trim().to_owned()))
    }
}

struct Reader<'a> {
    lines: Vec<Line>,
    at: usize,
    anchors: &'a mut BTreeMap<String, Yaml>,
}

impl Reader<'_> {
    /// The next line that is neither empty nor a comment.
    fn peek(&mut self) -> Option<Line> {
        while self.lines.get(self.at).is_some_and(|line| line.text.is_empty() || line.text.starts_with('#')) {
            self.at += 1;
        }
        self.lines.get(self.at).cloned()
    }

    /// A list or a map with the indentation of its first line.
    fn block(&mut self, least: usize) -> Result<Yaml, String> {
        let Some(first) = self.peek().filter(|line| line.indent >= least) else {
            return Ok(Yaml::Text(String::new()));
        };
        let (mut items, mut pairs) = (Vec::new(), Vec::<(String, Yaml)>::new());
        while let Some(line) = self.peek().filter(|line| line.indent >= first.indent) {
            if line.indent > first.indent || line.is_item() != first.is_item() {
                return Err(line.fault("it does not belong here"));
            }
            if line.is_item() {
                items.push(self.item(&line)?);
                continue;
            }
            let (key, rest) = line.pair().ok_or_else(|| line.fault("no key"))?;
            if pairs.iter().any(|(name, _)| *name == key) {
                return Err(line.fault("the key is there twice"));
            }
            self.at += 1;
            let value = self.value(&line, &rest)?;
            pairs.push((key, value));
        }
        Ok(if first.is_item() { Yaml::List(items) } else { Yaml::Map(pairs) })
    }

    /// The text after a dash: the first key of a map, or a value.
    fn item(&mut self, line: &Line) -> Result<Yaml, String> {
        let inner = Line { indent: line.indent + 2, text: line.text[2..].to_owned(), ..line.clone() };
        if inner.pair().is_some() {
            let indent = inner.indent;
            self.lines[self.at] = inner;
            return self.block(indent);
        }
        self.at += 1;
        flow(line, &inner.text)
    }

    fn value(&mut self, line: &Line, rest: &str) -> Result<Yaml, String> {
        if let Some(name) = rest.strip_prefix('&') {
            let value = self.block(line.indent + 1)?;
            self.anchors.insert(name.to_owned(), value.clone());
            return Ok(value);
        }
        if let Some(name) = rest.strip_prefix('*') {
            return self.anchors.get(name).cloned().ok_or_else(|| line.fault("unknown anchor"));
        }
        match rest {
            "" => self.block(line.indent + 1),
            "|" => Ok(Yaml::Text(self.literal(line.indent))),
            _ => flow(line, rest),
        }
    }

    /// A block of text: the lines that are indented more than their key.
    fn literal(&mut self, indent: usize) -> String {
        let rest = &self.lines[self.at..];
        let count = rest.iter().take_while(|line| line.text.is_empty() || line.indent > indent).count();
        let left = rest[..count].iter().filter(|line| !line.text.is_empty()).map(|line| line.indent).min();
        let text = |line: &Line| {
            format!("{:1$}{2}\n", "", line.indent.saturating_sub(left.unwrap_or_default()), line.text)
        };
        let literal = rest[..count].iter().map(text).collect();
        self.at += count;
        literal
    }
}

/// A value on one line.
fn flow(line: &Line, text: &str) -> Result<Yaml, String> {
    let text = text.split_once(" #").map_or(text, |(before, _)| before).trim();
    if !text.starts_with(['{', '[', '"', '\'']) {
        let is_plain =
            !text.contains(": ") && !text.starts_with(['&', '*', '!', '|', '>', '%', '@', '`', ']', '}']);
        return if is_plain { Ok(Yaml::Text(text.to_owned())) } else { Err(line.fault("not plain")) };
    }
    let mut rest = text;
    let value = piece(&mut rest).ok_or_else(|| line.fault("it has no end"))?;
    if rest.is_empty() { Ok(value) } else { Err(line.fault("something is behind its end")) }
}

/// Splits off the first value between brackets, commas and quotes.
fn piece(rest: &mut &str) -> Option<Yaml> {
    let (first, behind) = (rest.chars().next()?, &rest[1..]);
    match first {
        '"' | '\'' => {
            let (text, behind) = behind.split_once(first)?;
            *rest = behind;
            Some(Yaml::Text(text.to_owned()))
        }
        '[' | '{' => {
            let (mut items, mut pairs) = (Vec::new(), Vec::new());
            *rest = behind.trim_start();
            while !take(rest, if first == '[' { ']' } else { '}' }) {
                if first == '[' {
                    items.push(piece(rest)?);
                } else {
                    let (key, behind) = rest.split_once(": ")?;
                    *rest = behind;
                    pairs.push((key.to_owned(), piece(rest)?));
                }
                *rest = rest.trim_start();
                if !take(rest, ',') && !rest.starts_with([']', '}']) {
                    return None;
                }
                *rest = rest.trim_start();
            }
            Some(if first == '[' { Yaml::List(items) } else { Yaml::Map(pairs) })
        }
        _ => {
            let end = rest.find([',', ']', '}'])?;
            let (text, behind) = rest.split_at(end);
            *rest = behind;
            Some(Yaml::Text(text.trim().to_owned()))
        }
    }
}

fn take(rest: &mut &str, wanted: char) -> bool {
    let behind = rest.strip_prefix(wanted);
    *rest = behind.unwrap_or(rest);
    behind.is_some()
}

#[test]
fn faults_are_found() {
    let check =
        |text: &str, expect: &str| assert_eq!(parse(text).map(drop), Err(expect.to_owned()), "{text}");
    check("a:\n\tb: 1", "line 2: a tab");
    check("a: 1\na: 2", "line 2: the key is there twice: a: 2");
    check("a: [1, 2", "line 1: it has no end: a: [1, 2");
    check("a: { b: 1", "line 1: it has no end: a: { b: 1");
    check("a: \"b", "line 1: it has no end: a: \"b");
    check("a: [1] 2", "line 1: something is behind its end: a: [1] 2");
    check("a: *b", "line 1: unknown anchor: a: *b");
    check("a: 1\n  b: 2", "line 2: it does not belong here: b: 2");
    check("a:\n    b: 1\n  c: 2", "line 3: it does not belong here: c: 2");
    check("a: 1\n- b", "line 2: it does not belong here: - b");
    check("a", "line 1: no key: a");
    check("a: b: c", "line 1: not plain: a: b: c");
}

#[test]
fn what_is_there_is_read() {
    let text = "# x\na: &n\n  b: [\"1\", 2] # two\n  c:\n    - d: { e: f }\n      g: |\n        h\n          i\n\nj: *n\n---\nk: l:m\n";
    let documents = parse(text).expect("it is fine");
    let check = |path, expect: &str| {
        assert_eq!(documents[0].at(path).and_then(Yaml::text), Some(expect), "{path}");
    };
    check("a.b.0", "1");
    check("j.b.1", "2");
    check("j.c.0.d.e", "f");
    check("a.c.0.g", "h\n  i\n\n");
    assert_eq!(documents[1].at("k").and_then(Yaml::text), Some("l:m"));
    assert_eq!(documents[0].at("a.c.1"), None);
}
