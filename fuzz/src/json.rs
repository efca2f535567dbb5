//! JSON read the slow way, letter by letter as RFC 8259 has it, to compare with.

use std::ops::Range;

/// A value and where it stands.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) range: Range<usize>,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Null,
    Bool,
    Number,
    /// `None` when its escapes are halves of characters.
    Text(Option<String>),
    Array(Vec<Node>),
    Object(Vec<Member>),
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) key: Option<String>,
    pub(crate) value: Node,
}

impl Node {
    pub(crate) fn text<'a>(&self, text: &'a str) -> &'a str {
        &text[self.range.clone()]
    }

    pub(crate) fn members(&self) -> &[Member] {
        match &self.kind {
            Kind::Object(members) => members,
            _ => &[],
        }
    }

    /// Every member of that name.
    pub(crate) fn all(&self, key: &str) -> Vec<&Node> {
        let same = self.members().iter().filter(|member| member.key.as_deref() == Some(key));
        same.map(|member| &member.value).collect()
    }

    /// The first member of that name.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.all(key).first().copied()
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => text.as_deref(),
            _ => None,
        }
    }

    pub(crate) fn is_object(&self) -> bool {
        matches!(self.kind, Kind::Object(_))
    }
}

/// One value, perhaps between white space; `None` for anything else.
pub(crate) fn read(text: &str) -> Option<Node> {
    let mut reader = Reader { text, at: 0 };
    reader.space();
    let node = reader.value()?;
    reader.space();
    (reader.at == text.len()).then_some(node)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn word(&mut self, word: &str) -> Option<()> {
        self.text.as_bytes()[self.at..].starts_with(word.as_bytes()).then(|| self.at += word.len())
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn value(&mut self) -> Option<Node> {
        let start = self.at;
        let kind = match self.peek()? {
            b'n' => self.word("null").map(|()| Kind::Null)?,
            b't' => self.word("true").map(|()| Kind::Bool)?,
            b'f' => self.word("false").map(|()| Kind::Bool)?,
            b'"' => Kind::Text(self.string()?),
            b'[' => self.array()?,
            b'{' => self.object()?,
            _ => self.number()?,
        };
        Some(Node { range: start..self.at, kind })
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    fn number(&mut self) -> Option<Kind> {
        _ = self.take(b'-');
        if self.take(b'0').is_none() {
            self.digits()?;
        }
        if self.take(b'.').is_some() {
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(Kind::Number)
    }

    /// The outer `None`: no string. The inner: one that stands for no text.
    #[expect(clippy::option_option, reason = "the two mean different things")]
    fn string(&mut self) -> Option<Option<String>> {
        self.take(b'"')?;
        let mut units = Vec::new();
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => {
                    self.at += 1;
                    let escape = self.peek()?;
                    self.at += 1;
                    units.push(match escape {
                        b'"' | b'\\' | b'/' => u16::from(escape),
                        b'b' => 8,
                        b'f' => 12,
                        b'n' => 10,
                        b'r' => 13,
                        b't' => 9,
                        b'u' => {
                            let hex = self.text.as_bytes().get(self.at..self.at + 4)?;
                            if !hex.iter().all(u8::is_ascii_hexdigit) {
                                return None;
                            }
                            self.at += 4;
                            u16::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?
                        }
                        _ => return None,
                    });
                }
                0..0x20 => return None,
                _ => {
                    let char = self.text[self.at..].chars().next()?;
                    units.extend_from_slice(char.encode_utf16(&mut [0; 2]));
                    self.at += char.len_utf8();
                }
            }
        }
        self.at += 1;
        Some(String::from_utf16(&units).ok())
    }

    fn array(&mut self) -> Option<Kind> {
        self.take(b'[')?;
        self.space();
        let mut items = Vec::new();
        if self.take(b']').is_some() {
            return Some(Kind::Array(items));
        }
        loop {
            self.space();
            items.push(self.value()?);
            self.space();
            if self.take(b']').is_some() {
                return Some(Kind::Array(items));
            }
            self.take(b',')?;
        }
    }

    fn object(&mut self) -> Option<Kind> {
        self.take(b'{')?;
        let mut members = Vec::new();
        self.space();
        if self.take(b'}').is_some() {
            return Some(Kind::Object(members));
        }
        loop {
            self.space();
            let key = self.string()?;
            self.space();
            self.take(b':')?;
            self.space();
            members.push(Member { key, value: self.value()? });
            self.space();
            if self.take(b'}').is_some() {
                return Some(Kind::Object(members));
            }
            self.take(b',')?;
        }
    }
}
