//! As much of HTTP/1.1 as the CLI speaks.

use std::io::{self, BufRead, Read, Write};

const MAX_HEAD_BYTES: u64 = 64 * 1024;
const MAX_BODY_BYTES: u64 = 64 * 1024 * 1024;

/// A request, read to its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Without the query.
    pub(crate) path: String,
    pub(crate) body: Vec<u8>,
    /// Whether the client wants no further answer on this connection.
    pub(crate) last: bool,
}

/// Reads one request; `None` is a clean close between requests.
pub(crate) fn read_request(reader: &mut impl BufRead) -> io::Result<Option<Request>> {
    if reader.fill_buf()?.is_empty() {
        return Ok(None);
    }
    let mut head = reader.take(MAX_HEAD_BYTES);
    let first = read_line(&mut head)?;
    let [method, target, "HTTP/1.1"] = first.split(' ').collect::<Vec<_>>()[..] else {
        return Err(invalid(format!("`{first}` is no request line of HTTP/1.1")));
    };
    let (mut length, mut chunked, mut last) = (0, false, false);
    loop {
        let line = read_line(&mut head)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(|| invalid(format!("`{line}` is no header")))?;
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().map_err(invalid)?,
            "transfer-encoding" => chunked = value.eq_ignore_ascii_case("chunked"),
            "connection" => last = value.eq_ignore_ascii_case("close"),
            _ => {}
        }
    }
    let body = if chunked { read_chunks(reader)? } else { read_exactly(reader, length)? };
    let path = target.split('?').next().unwrap_or(target).into();
    Ok(Some(Request { method: method.into(), path, body, last }))
}

fn read_chunks(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = read_line(reader)?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(size, 16).map_err(invalid)?;
        if size == 0 {
            while !read_line(reader)?.is_empty() {}
            return Ok(body);
        }
        body.extend(read_exactly(reader, size)?);
        if body.len() as u64 > MAX_BODY_BYTES {
            return Err(too_large(body.len() as u64));
        }
        read_line(reader)?;
    }
}

fn read_exactly(reader: &mut impl BufRead, size: u64) -> io::Result<Vec<u8>> {
    if size > MAX_BODY_BYTES {
        return Err(too_large(size));
    }
    let mut body = Vec::new();
    // Grows with what comes: the client does not choose our allocation.
    reader.take(size).read_to_end(&mut body)?;
    if (body.len() as u64) < size { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(body) }
}

fn read_line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    reader.take(MAX_HEAD_BYTES).read_until(b'\n', &mut line)?;
    let line = line.strip_suffix(b"\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    String::from_utf8(line.strip_suffix(b"\r").unwrap_or(line).into()).map_err(invalid)
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn too_large(size: u64) -> io::Error {
    invalid(format!("a body of {size} bytes is over the limit of {MAX_BODY_BYTES} bytes"))
}

/// Writes a whole answer; the answer to `HEAD` has no body.
pub(crate) fn write_answer(
    writer: &mut impl Write,
    request: &Request,
    status: u16,
    content_type: &str,
    body: &[u8],
) -> io::Result<()> {
    let mut answer = head(request, status, content_type, &format!("content-length: {}", body.len()));
    if request.method != "HEAD" {
        answer.extend_from_slice(body);
    }
    writer.write_all(&answer)
}

/// Writes the head of an answer that comes in chunks.
pub(crate) fn start_chunks(writer: &mut impl Write, request: &Request, content_type: &str) -> io::Result<()> {
    writer.write_all(&head(request, 200, content_type, "transfer-encoding: chunked"))
}

/// Writes one chunk at once; an empty one is the end.
pub(crate) fn write_chunk(writer: &mut impl Write, data: &[u8]) -> io::Result<()> {
    let mut chunk = format!("{:x}\r\n", data.len()).into_bytes();
    chunk.extend_from_slice(data);
    chunk.extend_from_slice(b"\r\n");
    writer.write_all(&chunk)
}

fn head(request: &Request, status: u16, content_type: &str, length: &str) -> Vec<u8> {
    let reason = if status == 200 { "OK" } else { "Error" };
    let connection = if request.last { "close" } else { "keep-alive" };
    format!(
        "HTTP/1.1 {status} {reason}\r\ncontent-type: {content_type}\r\n{length}\r\nconnection: {connection}\r\n\r\n"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &str) -> io::Result<Option<Request>> {
        read_request(&mut input.as_bytes())
    }

    #[test]
    fn bodies_with_a_length_and_in_chunks_are_the_same() {
        let head = "POST /v1/messages?beta=true HTTP/1.1\r\nHost: x\r\n";
        let whole = read(&format!("{head}Content-Length: 7\r\n\r\nabcdefg")).unwrap().unwrap();
        let chunks =
            format!("{head}transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\n\r\n");
        assert_eq!(whole, read(&chunks).unwrap().unwrap());
        assert_eq!((&*whole.method, &*whole.path, &*whole.body), ("POST", "/v1/messages", &b"abcdefg"[..]));
        assert!(!whole.last);
        assert!(read("GET / HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap().unwrap().last);
    }

    #[test]
    fn each_torn_request_is_an_error() {
        let head = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
        let request = format!("{head}3\r\nabc\r\n0\r\n\r\n");
        assert_eq!(read("").unwrap(), None);
        for cut in 1..request.len() {
            assert!(read(&request[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn what_is_no_request_is_an_error() {
        let long = format!("GET / HTTP/1.1\r\na: {}\r\n\r\n", "x".repeat(100_000));
        for input in [
            "hello\r\n\r\n",
            "GET / HTTP/1.0\r\n\r\n",
            "GET / HTTP/1.1\r\nno header\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: many\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nfffffffff\r\n",
            &long,
        ] {
            assert!(read(input).is_err(), "{}", &input[..input.len().min(80)]);
        }
    }
}
