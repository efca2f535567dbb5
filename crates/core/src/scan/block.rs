//! Scans large values sixty-four bytes at a time.
//!
//! Each kind of byte gets a bit mask, and the grammar becomes arithmetic on these masks: whether a token may follow
//! another is computed for all tokens of a block at once. Only brackets are visited one by one, to track levels,
//! and scalars that are more than digits. A megabyte of small objects takes three fifths of the time of the byte
//! scanner.

use std::arch::x86_64::{
    __m256i, _mm_clmulepi64_si128, _mm_cvtsi128_si64, _mm_set_epi64x, _mm_set1_epi8, _mm256_cmpeq_epi8,
    _mm256_loadu_si256, _mm256_min_epu8, _mm256_movemask_epi8, _mm256_or_si256, _mm256_set1_epi8,
    _mm256_sub_epi8,
};

use super::{escape_end, fraction_end, literal_end, number_end, string_rest_end};

/// Where the object or list that begins at `at` ends, and how many levels it has. Also `None` where this scanner
/// cannot tell: on processors without these instructions, and for more than 63 levels.
pub(super) fn extent(text: &[u8], at: usize) -> Option<(usize, usize)> {
    let can = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("pclmulqdq");
    if !can || !matches!(text.get(at), Some(b'{' | b'[')) {
        return None;
    }
    #[expect(unsafe_code, reason = "the processor must have what the function is compiled for")]
    // SAFETY: it has.
    unsafe {
        scan(text, at)
    }
}

/// Two halves. The functions below handle both explicitly: a closure would not be compiled for the same target
/// features.
type Block = [__m256i; 2];

#[target_feature(enable = "avx2")]
#[inline]
fn load(bytes: &[u8; 64]) -> Block {
    let (low, high) = bytes.split_at(32);
    #[expect(unsafe_code, reason = "a load takes a pointer")]
    // SAFETY: each half has the thirty-two bytes that are read, and the loads need no alignment.
    unsafe {
        [_mm256_loadu_si256(low.as_ptr().cast()), _mm256_loadu_si256(high.as_ptr().cast())]
    }
}

/// A bit for each byte whose highest bit is set.
#[target_feature(enable = "avx2")]
#[inline]
fn bits([low, high]: Block) -> u64 {
    let (low, high) = (_mm256_movemask_epi8(low), _mm256_movemask_epi8(high));
    u64::from(low.cast_unsigned()) | u64::from(high.cast_unsigned()) << 32
}

/// Which bytes equal this one.
#[target_feature(enable = "avx2")]
#[inline]
fn equal(block: Block, byte: u8) -> Block {
    let byte = _mm256_set1_epi8(byte.cast_signed());
    [_mm256_cmpeq_epi8(block[0], byte), _mm256_cmpeq_epi8(block[1], byte)]
}

/// Which bytes are no larger than this one.
#[target_feature(enable = "avx2")]
#[inline]
fn at_most([low, high]: Block, byte: u8) -> Block {
    let byte = _mm256_set1_epi8(byte.cast_signed());
    [_mm256_cmpeq_epi8(_mm256_min_epu8(low, byte), low), _mm256_cmpeq_epi8(_mm256_min_epu8(high, byte), high)]
}

#[target_feature(enable = "avx2")]
#[inline]
fn either(one: Block, other: Block) -> Block {
    [_mm256_or_si256(one[0], other[0]), _mm256_or_si256(one[1], other[1])]
}

/// From each odd-numbered set bit up to, but not including, the next set bit.
#[target_feature(enable = "pclmulqdq")]
#[inline]
fn between_pairs(bits: u64) -> u64 {
    let bits = _mm_set_epi64x(0, bits.cast_signed());
    _mm_cvtsi128_si64(_mm_clmulepi64_si128::<0>(bits, _mm_set1_epi8(-1))).cast_unsigned()
}

/// The tokens whose predecessor is in `class`. `carry` says whether the last token of the previous blocks is.
#[inline]
fn after(class: u64, tokens: u64, carry: &mut u64) -> u64 {
    // The addition carries through the bytes between two tokens.
    let (sum, has_left) = (class << 1 | *carry).overflowing_add(!tokens);
    *carry = u64::from(has_left) | class >> 63;
    sum & tokens
}

/// Which bytes are preceded by an odd number of backslashes.
#[inline]
fn escaped(backslashes: u64, carry: &mut u64) -> u64 {
    const EVEN: u64 = 0x5555_5555_5555_5555;
    let backslashes = backslashes & !*carry;
    let follows = backslashes << 1 | *carry;
    let (sum, has_left) = (backslashes & !EVEN & !follows).overflowing_add(backslashes);
    *carry = u64::from(has_left);
    (EVEN ^ sum << 1) & follows
}

/// State carried over from the previous blocks.
#[derive(Default)]
struct Before {
    /// All bits set if inside a string.
    in_string: u64,
    is_escaped: u64,
    is_scalar: u64,
    /// Inside the first digits of a number.
    in_digits: u64,
    /// Directly after a zero that begins a number.
    is_zero: u64,
    /// The kind of the last token.
    end: u64,
    brace: u64,
    bracket: u64,
    comma: u64,
    key: u64,
}

/// The objects and lists around the current position: one bit for each, set for an object, below a bit that marks
/// the end. The lowest bit is the innermost level.
struct Levels {
    now: u64,
    most: u64,
}

impl Levels {
    /// Processes the brackets of a block. Returns which of its tokens are in an object, and a mask of all bits up
    /// to the end of the value.
    #[inline]
    fn pass(&mut self, bytes: &[u8; 64], brackets: u64) -> Option<(u64, u64)> {
        let mut in_object = 0_u64.wrapping_sub(self.now & 1);
        for place in places(brackets) {
            let (bracket, outer) = (u64::from(bytes[place]), self.now);
            let kind = bracket >> 5 & 1;
            if bracket & 2 != 0 {
                if outer >> 63 != 0 {
                    return None;
                }
                self.now = outer << 1 | kind;
                self.most = self.most.max(self.now);
            } else {
                if (outer ^ kind) & 1 != 0 {
                    return None;
                }
                self.now = outer >> 1;
                if self.now == 1 {
                    return Some((in_object, !(!1 << place)));
                }
            }
            in_object ^= 0_u64.wrapping_sub((outer ^ self.now) & 1) & (!1 << place);
        }
        Some((in_object, !0))
    }
}

#[target_feature(enable = "avx2,bmi1,pclmulqdq")]
fn scan(text: &[u8], mut at: usize) -> Option<(usize, usize)> {
    let mut levels = Levels { now: 1, most: 1 };
    // The value is treated like the first item of a list.
    let mut before = Before { bracket: 1, ..Before::default() };
    let mut rest;
    loop {
        let left = text.get(at..).filter(|left| !left.is_empty())?;
        let bytes = if let Some(bytes) = left.first_chunk::<64>() {
            bytes
        } else {
            rest = padded(left);
            &rest
        };
        let block = load(bytes);
        let (quotes, backslashes, controls) =
            (bits(equal(block, b'"')), equal(block, b'\\'), at_most(block, 0x1f));
        if quotes == 0 && before.in_string != 0 && before.is_escaped == 0 {
            at = string_rest_end(text, at, |text, at| special(text, at))?;
            before.in_string = 0;
            continue;
        }

        let (mut spaces, mut controls, mut escapes) = (bits(equal(block, b' ')), bits(controls), 0);
        let backslashes = bits(backslashes);
        let mut wrong = 0;
        if backslashes | controls | before.is_escaped != 0 {
            escapes = escaped(backslashes, &mut before.is_escaped);
            let breaks = bits(either(either(equal(block, b'\n'), equal(block, b'\r')), equal(block, b'\t')));
            wrong = controls & !breaks;
            spaces |= breaks;
        }
        let quotes = quotes & !escapes;
        let inside = between_pairs(quotes) ^ before.in_string;
        before.in_string = (inside.cast_signed() >> 63).cast_unsigned();
        controls &= inside;
        let outside = !inside;

        // Brackets and braces differ in one bit.
        let lower = either(block, [_mm256_set1_epi8(0x20); 2]);
        let open = bits(equal(lower, b'{')) & outside;
        let close = bits(equal(lower, b'}')) & outside;
        let brace = bits(equal(block, b'{')) & open;
        let colon = bits(equal(block, b':')) & outside;
        let comma = bits(equal(block, b',')) & outside;
        let string = quotes & inside;
        let scalars = outside & !(quotes | open | close | colon | comma | spaces);
        let scalar = scalars & !(scalars << 1 | before.is_scalar);
        before.is_scalar = scalars >> 63;
        let leaf = string | scalar;
        let tokens = open | close | colon | comma | leaf;

        let (in_object, until) = levels.pass(bytes, open | close)?;
        let after_end = after(leaf | close, tokens, &mut before.end);
        let after_brace = after(brace, tokens, &mut before.brace);
        let after_bracket = after(open & !brace, tokens, &mut before.bracket);
        let after_comma = after(comma, tokens, &mut before.comma);
        let key = string & (after_brace | after_comma & in_object);
        wrong |= controls
            | (leaf | open) & after_end
            | comma & !after_end
            | close & !(after_end | after_brace | after_bracket)
            | after_brace & !(string | close)
            | after_comma & in_object & !string
            | colon ^ after(key, tokens, &mut before.key);

        // Scalars that consist of digits only need no further check, unless they begin with a zero.
        let zeros = _mm256_set1_epi8(0x30);
        let from_zero = [_mm256_sub_epi8(block[0], zeros), _mm256_sub_epi8(block[1], zeros)];
        let digits = bits(at_most(from_zero, 9)) & scalars;
        let zero = bits(equal(block, b'0')) & scalar;
        wrong |= (zero << 1 | before.is_zero) & digits;
        before.is_zero = zero >> 63;
        let (sum, has_left) = (scalar & digits | before.in_digits).overflowing_add(digits);
        before.in_digits = u64::from(has_left);
        if wrong & until != 0 {
            return None;
        }
        for place in places(backslashes & !escapes & until) {
            escape_end(text, at + place)?;
        }
        for place in places((sum | scalar) & scalars & !digits & until) {
            let end = scalar_end(text, at + place)?;
            // Nothing that could be part of the scalar may follow it.
            if !matches!(text.get(end)?, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t') {
                return None;
            }
        }
        if levels.now == 1 {
            let deepest = 63 - levels.most.leading_zeros() as usize;
            return Some((at + 64 - until.leading_zeros() as usize, deepest));
        }
        at += 64;
    }
}

/// The positions of the set bits, the lowest first.
#[inline]
fn places(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (place < 64).then_some(place)
    })
}

/// The last bytes, padded with spaces.
#[cold]
fn padded(last: &[u8]) -> [u8; 64] {
    let mut bytes = [b' '; 64];
    bytes[..last.len()].copy_from_slice(last);
    bytes
}

/// Where a scalar ends that is more than digits; for a number, `at` may be inside of it.
#[inline]
fn scalar_end(text: &[u8], at: usize) -> Option<usize> {
    match text[at] {
        b't' => literal_end(text, at, *b"true"),
        b'f' => literal_end(text, at + 1, *b"alse"),
        b'n' => literal_end(text, at, *b"null"),
        b'-' => number_end(text, at),
        b'.' | b'e' | b'E' if text[at - 1].is_ascii_digit() => fraction_end(text, at),
        _ => None,
    }
}

/// The next quote, backslash or control character.
#[target_feature(enable = "avx2")]
#[inline]
fn special(text: &[u8], mut at: usize) -> usize {
    while let Some(bytes) = text.get(at..).and_then(<[u8]>::first_chunk) {
        let block = load(bytes);
        let found = bits(either(either(equal(block, b'"'), equal(block, b'\\')), at_most(block, 0x1f)));
        if found != 0 {
            return at + found.trailing_zeros() as usize;
        }
        at += 64;
    }
    super::special(text, at)
}
