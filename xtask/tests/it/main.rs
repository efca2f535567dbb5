//! Checks the pages and packages of this project against its files.
#![allow(clippy::unwrap_used, reason = "tests")]

mod architecture;
mod errors;
mod faults;
mod pages;
