//! Rust source without what is no code, so that a rule may look for words in it.

/// The text with every comment and the inside of every literal blanked out. Lines stay where they are.
pub(super) fn code_only(text: &str) -> String {
    let mut masked = Masked { chars: text.chars().collect(), at: 0, out: String::with_capacity(text.len()) };
    while let Some(c) = masked.peek(0) {
        match c {
            '/' if masked.peek(1) == Some('/') => masked.line_comment(),
            '/' if masked.peek(1) == Some('*') => masked.block_comment(),
            '"' => masked.string(),
            'r' if masked.starts_raw_string() => masked.raw_string(),
            '\'' => masked.quote(),
            c if is_word(c) => masked.word(),
            _ => masked.keep(),
        }
    }
    masked.out
}

/// Whether `word` occurs in `line` as a whole word at its start.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| !line[..at].ends_with(is_word))
}

struct Masked {
    chars: Vec<char>,
    at: usize,
    out: String,
}

impl Masked {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn keep(&mut self) {
        self.out.extend(self.peek(0));
        self.at += 1;
    }

    fn blank(&mut self) {
        self.out.extend(self.peek(0).map(|c| if c == '\n' { c } else { ' ' }));
        self.at += 1;
    }

    fn line_comment(&mut self) {
        while self.peek(0).is_some_and(|c| c != '\n') {
            self.blank();
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        while let Some(c) = self.peek(0) {
            match (c, self.peek(1)) {
                ('/', Some('*')) => depth += 1,
                ('*', Some('/')) => depth -= 1,
                _ => {
                    self.blank();
                    continue;
                }
            }
            self.blank();
            self.blank();
            if depth == 0 {
                break;
            }
        }
    }

    fn string(&mut self) {
        self.keep();
        self.until('"');
        self.keep();
    }

    /// `r"`, `r#"` and so on; `r#word` is none.
    fn starts_raw_string(&self) -> bool {
        self.chars[self.at + 1..].iter().find(|c| **c != '#') == Some(&'"')
    }

    fn raw_string(&mut self) {
        self.keep();
        let mut hashes = 0;
        while self.peek(0) == Some('#') {
            hashes += 1;
            self.keep();
        }
        self.keep();
        while self.peek(0).is_some() {
            let closes = self.peek(0) == Some('"') && (1..=hashes).all(|i| self.peek(i) == Some('#'));
            if closes {
                (0..=hashes).for_each(|_| self.keep());
                break;
            }
            self.blank();
        }
    }

    /// A character literal or a lifetime.
    fn quote(&mut self) {
        let is_literal = self.peek(1) == Some('\\') || self.peek(2) == Some('\'');
        self.keep();
        if is_literal {
            self.until('\'');
            self.keep();
        }
    }

    /// A whole word at once, so that an `r` at its end starts no raw string; but `br"` and `cr"` do.
    fn word(&mut self) {
        while self.peek(0).is_some_and(is_word) {
            let prefixed = matches!(self.peek(0), Some('b' | 'c')) && self.peek(1) == Some('r');
            self.keep();
            if prefixed && self.starts_raw_string() {
                break;
            }
        }
    }

    fn until(&mut self, end: char) {
        while self.peek(0).is_some_and(|c| c != end) {
            if self.peek(0) == Some('\\') {
                self.blank();
            }
            self.blank();
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked() {
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
        assert_eq!(code_only(text), expect);
    }
}
