//! New inputs from old ones.

use crate::random::Random;

/// No input is longer: a short one that fails says more, and runs faster.
pub(crate) const MAX_INPUT_BYTES: usize = 4096;

/// Bytes that begin or end something somewhere.
const EDGES: [u8; 16] =
    [0, 1, 0x7f, 0x80, 0xff, b'\n', b'\r', b'"', b'\\', b'{', b'}', b'[', b']', b'/', b'.', b' '];

/// Changes one of `seeds` in one to eight ways.
pub(crate) fn mutated(seeds: &[Vec<u8>], words: &[&[u8]], random: &mut Random) -> Vec<u8> {
    let mut input = if seeds.is_empty() { Vec::new() } else { random.pick(seeds).clone() };
    for _ in 0..=random.below(8) {
        mutate(&mut input, seeds, words, random);
        input.truncate(MAX_INPUT_BYTES);
    }
    input
}

fn mutate(input: &mut Vec<u8>, seeds: &[Vec<u8>], words: &[&[u8]], random: &mut Random) {
    let length = input.len();
    let at = random.below(length + 1);
    let end = at + random.below(length - at + 1).min(64);
    match random.below(12) {
        0 if at < length => input[at] ^= 1 << random.below(8),
        1 if at < length => input[at] = random.byte(),
        2 if at < length => input[at] = *random.pick(&EDGES),
        3 => input.insert(at, *random.pick(&EDGES)),
        4 => _ = input.drain(at..end),
        5 => {
            // The same again, perhaps often.
            let part = input[at..end].repeat(1 + random.below(8));
            input.splice(at..at, part);
        }
        6 => input.truncate(at),
        7 if length >= 4 => {
            // A length, as a prefix would say it.
            let at = random.below(length - 3);
            let sizes = [0, 1, length.saturating_sub(at + 4), length, 10_485_760, 10_485_761, usize::MAX];
            let size = u32::try_from(*random.pick(&sizes)).unwrap_or(u32::MAX);
            input[at..at + 4].copy_from_slice(&size.to_be_bytes());
        }
        8 if !seeds.is_empty() => {
            let other = random.pick(seeds);
            let from = random.below(other.len() + 1);
            let to = from + random.below(other.len() - from + 1);
            input.splice(at..end, other[from..to].iter().copied());
        }
        9 if !words.is_empty() => _ = input.splice(at..end, random.pick(words).iter().copied()),
        _ if !words.is_empty() => _ = input.splice(at..at, random.pick(words).iter().copied()),
        _ => input.insert(at, random.byte()),
    }
}
