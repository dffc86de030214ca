//! Splits Rust source into code, comments and literals, so that a rule can search one of them.

/// Three copies of a Rust file. Each contains one kind of text, with blanks in place of the rest,
/// so lines and columns stay where they are.
#[derive(Debug, Default)]
pub(super) struct RustSource {
    pub(super) code: String,
    pub(super) comments: String,
    /// The contents of string and character literals. Their quotes belong to the code.
    pub(super) literals: String,
}

impl RustSource {
    pub(super) fn new(text: &str) -> Self {
        let mut parser = Parser { chars: text.chars().collect(), at: 0, source: Self::default() };
        while let Some(c) = parser.peek(0) {
            match c {
                '/' if parser.peek(1) == Some('/') => parser.line_comment(),
                '/' if parser.peek(1) == Some('*') => parser.block_comment(),
                '"' => parser.string(),
                'r' if parser.starts_raw_string() => parser.raw_string(),
                '\'' => parser.quote(),
                c if is_word(c) => parser.word(),
                _ => parser.take(Kind::Code),
            }
        }
        parser.source
    }
}

/// Returns true if `word` occurs in `line` and a word starts there.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| !line[..at].ends_with(is_word))
}

pub(super) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

struct Parser {
    chars: Vec<char>,
    at: usize,
    source: RustSource,
}

impl Parser {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    /// Moves one character to the copy of its kind.
    fn take(&mut self, kind: Kind) {
        let Some(c) = self.peek(0) else { return };
        let RustSource { code, comments, literals } = &mut self.source;
        for (copy, of) in [(code, Kind::Code), (comments, Kind::Comment), (literals, Kind::Literal)] {
            copy.push(if c == '\n' || of == kind { c } else { ' ' });
        }
        self.at += 1;
    }

    fn line_comment(&mut self) {
        while self.peek(0).is_some_and(|c| c != '\n') {
            self.take(Kind::Comment);
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        while let Some(c) = self.peek(0) {
            match (c, self.peek(1)) {
                ('/', Some('*')) => depth += 1,
                ('*', Some('/')) => depth -= 1,
                _ => {
                    self.take(Kind::Comment);
                    continue;
                }
            }
            self.take(Kind::Comment);
            self.take(Kind::Comment);
            if depth == 0 {
                break;
            }
        }
    }

    fn string(&mut self) {
        self.take(Kind::Code);
        self.until('"');
        self.take(Kind::Code);
    }

    /// Returns true for `r"`, `r#"` and so on, and false for `r#word`.
    fn starts_raw_string(&self) -> bool {
        self.chars[self.at + 1..].iter().find(|c| **c != '#') == Some(&'"')
    }

    fn raw_string(&mut self) {
        self.take(Kind::Code);
        let mut hashes = 0;
        while self.peek(0) == Some('#') {
            hashes += 1;
            self.take(Kind::Code);
        }
        self.take(Kind::Code);
        while self.peek(0).is_some() {
            let closes = self.peek(0) == Some('"') && (1..=hashes).all(|i| self.peek(i) == Some('#'));
            if closes {
                (0..=hashes).for_each(|_| self.take(Kind::Code));
                break;
            }
            self.take(Kind::Literal);
        }
    }

    /// A character literal or a lifetime.
    fn quote(&mut self) {
        let is_literal = self.peek(1) == Some('\\') || self.peek(2) == Some('\'');
        self.take(Kind::Code);
        if is_literal {
            self.until('\'');
            self.take(Kind::Code);
        }
    }

    /// Takes a whole word, so that an `r` at its end starts no raw string. `br"` and `cr"` start
    /// one.
    fn word(&mut self) {
        while self.peek(0).is_some_and(is_word) {
            let prefixed = matches!(self.peek(0), Some('b' | 'c')) && self.peek(1) == Some('r');
            self.take(Kind::Code);
            if prefixed && self.starts_raw_string() {
                break;
            }
        }
    }

    fn until(&mut self, end: char) {
        while self.peek(0).is_some_and(|c| c != end) {
            if self.peek(0) == Some('\\') {
                self.take(Kind::Literal);
            }
            self.take(Kind::Literal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_contains_no_comments_and_literals() {
        check("a // b\nc", "a     \nc");
        check("a /* b /* c */ \n d */ e", "a              \n      e");
        check("/**/x/* open", "    x       ");
        check(r#"f("x // y", z)"#, r#"f("      ", z)"#);
        check(r#"f("\"x\\", z)"#, r#"f("     ", z)"#);
        check("b\"x\" br\"y\" c\"z\"", "b\" \" br\" \" c\" \"");
        check(r###"r#"x " y"# z"###, r###"r#"     "# z"###);
        check("'x' '\\'' '\\u{1F}' '\"'", "' ' '  ' '      ' ' '");
        check("fn f<'a>(x: &'a str) // y", "fn f<'a>(x: &'a str)     ");
        check("r#type for_r \"s\" 'é'", "r#type for_r \" \" ' '");
        check("\"open", "\"    ");
    }

    #[test]
    fn words_start_at_a_boundary() {
        assert!(has_word("x(now())", "now"));
        assert!(has_word("know now", "now"));
        assert!(!has_word("know", "now"));
    }

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let RustSource { code, comments, literals } = RustSource::new(text);
        assert_eq!(code, expect);
        // Every character is in exactly one of the copies.
        let all = code.chars().zip(comments.chars()).zip(literals.chars());
        let merged = all.map(|((a, b), c)| [a, b, c].into_iter().find(|c| *c != ' ').unwrap_or(' '));
        assert_eq!(merged.collect::<String>(), text);
    }
}
