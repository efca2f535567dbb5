//! A large folder of Markdown with a word distribution like that of a natural language.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Result;

/// The approximate size of a file.
pub(crate) const FILE_BYTES: usize = 5_000;
const MANUALS: usize = 20;
const FOLDERS: usize = 50;
const WORDS: usize = 60_000;
/// The length of the generated text that files take pieces of, in words.
const POOL: usize = 2_000_000;
const LINE_WORDS: usize = 12;

/// Words from the most frequent to the rarest; the same in every run.
pub(crate) fn words() -> Vec<String> {
    let mut random = Random(7);
    let syllables: Vec<_> =
        "bdfgklmnprstvz".chars().flat_map(|one| "aeiou".chars().map(move |other| [one, other])).collect();
    let word = |random: &mut Random| {
        let count = 2 + random.below(4);
        (0..count).flat_map(|_| syllables[random.below(syllables.len())]).collect::<String>()
    };
    let mut seen = std::collections::HashSet::new();
    let mut words = Vec::new();
    while words.len() < WORDS {
        let word = word(&mut random);
        if seen.insert(word.clone()) {
            words.push(word);
        }
    }
    words
}

/// Writes this many files below `manuals`.
#[expect(clippy::cast_precision_loss, reason = "there are few words")]
pub(crate) fn write(manuals: &Path, files: usize) -> Result<()> {
    let words = words();
    let mut random = Random(11);
    // Zipf's law: a word's frequency is `1 / place` in the list.
    let mut sums: Vec<f64> = Vec::with_capacity(words.len());
    for place in 1..=words.len() {
        sums.push(sums.last().copied().unwrap_or_default() + 1.0 / place as f64);
    }
    let all = sums[sums.len() - 1];
    let mut draw = || {
        let point = random.fraction() * all;
        sums.partition_point(|sum| *sum < point).min(words.len() - 1)
    };
    let pool: Vec<usize> = (0..POOL).map(|_| draw()).collect();
    for file in 0..files {
        let folder = manuals.join(format!("manual{:02}/part{:02}", file % MANUALS, file / MANUALS % FOLDERS));
        fs::create_dir_all(&folder)?;
        let mut text = String::new();
        let mut section = 0;
        while text.len() < FILE_BYTES {
            let count = 60 + random.below(100);
            let start = random.below(POOL - count);
            let piece: Vec<_> = pool[start..start + count].iter().map(|word| words[*word].as_str()).collect();
            let level = if section == 0 { "#" } else { ["###", "##", "##"][section % 3] };
            _ = write!(text, "{level} {} {file}\n\n", piece[..3].join(" "));
            for line in piece.chunks(LINE_WORDS) {
                _ = writeln!(text, "{}", line.join(" "));
            }
            _ = write!(text, "\nSee `get{}` and item{file}x{section}.\n\n", piece[0]);
            section += 1;
        }
        fs::write(folder.join(format!("file{file:06}.md")), text)?;
    }
    Ok(())
}

/// A pseudo-random generator with the same sequence everywhere (xorshift).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap_or_default()
    }

    #[expect(clippy::cast_precision_loss, reason = "as many bits as there are digits")]
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
