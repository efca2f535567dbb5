//! What the pages and the packages of this project say about its files.
#![allow(clippy::unwrap_used, reason = "tests")]

mod architecture;
mod errors;
mod faults;
mod pages;
