//! Text for people: tables, times and progress. What is shown is decided elsewhere; nothing here reads anything.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use core_delivery::event::UnixMillis;

/// Rows under their headings, each column as wide as its widest cell. Control characters come from payloads and
/// headers, and a terminal would obey them: they become blanks.
pub fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let printable = |cell: &str| -> String { cell.chars().map(|c| if c.is_control() { ' ' } else { c }).collect() };
    let headings: Vec<String> = headings.iter().map(|heading| (*heading).to_owned()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
    let mut widths: Vec<usize> = headings.iter().map(|heading| heading.chars().count()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in std::iter::once(&headings).chain(&rows) {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            write!(line, "{cell:width$}  ").expect("a string takes everything");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// An instant as RFC 3339 in UTC; a dash for none.
pub fn time(instant: Option<UnixMillis>) -> String {
    let instant = instant.and_then(|instant| u64::try_from(instant.0).ok());
    let instant = instant.and_then(|millis| UNIX_EPOCH.checked_add(Duration::from_millis(millis)));
    instant.map_or_else(|| "-".to_owned(), |at| humantime::format_rfc3339_millis(at).to_string())
}

/// A value, or a dash for none.
pub fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Reads `2026-12-01T10:00:00Z`, or `2h` for two hours ago.
pub fn instant(text: &str) -> Result<UnixMillis, String> {
    let since_epoch = |at: SystemTime| at.duration_since(UNIX_EPOCH).ok();
    let at = match humantime::parse_rfc3339_weak(text) {
        Ok(at) => since_epoch(at),
        Err(_) => {
            let ago = humantime::parse_duration(text);
            let ago = ago.map_err(|_| format!("{text:?} is no time: 2026-12-01T10:00:00Z, or 2h for two hours ago"))?;
            SystemTime::now().checked_sub(ago).and_then(since_epoch)
        }
    };
    let millis = at.and_then(|at| i64::try_from(at.as_millis()).ok());
    millis.map(UnixMillis).ok_or_else(|| format!("{text:?} lies before 1970"))
}

/// Writes to standard output. A reader that has left, such as `head`, has seen enough.
pub fn show(text: &str) {
    let mut out = std::io::stdout().lock();
    // There is nobody to tell.
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// How often progress is told.
const INTERVAL: Duration = Duration::from_secs(2);

/// Tells on standard error how far something is that takes long; what is done soon says nothing.
#[derive(Debug)]
pub struct Progress {
    what: String,
    count: u64,
    told: Instant,
}

impl Progress {
    /// Of this, such as "letters read".
    pub fn of(what: impl Into<String>) -> Self {
        Self { what: what.into(), count: 0, told: Instant::now() }
    }

    /// One more is done.
    pub fn step(&mut self) {
        self.reach(self.count + 1);
    }

    /// So many are done.
    pub fn reach(&mut self, count: u64) {
        self.count = count;
        // A clock for each of a million records would cost more than the record.
        if count.is_multiple_of(64) && self.told.elapsed() >= INTERVAL {
            self.tell();
        }
    }

    /// Tells it now.
    pub fn tell(&mut self) {
        self.told = Instant::now();
        eprintln!("{}: {}", self.what, self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_nothing_controls_the_terminal() {
        let rows = [vec!["a".to_owned(), "größe".to_owned()], vec!["long one".to_owned(), "x\u{1b}[2J\n".to_owned()]];
        assert_eq!(table(&["id", "text"], &rows), "id        text\na         größe\nlong one  x [2J\n");
    }

    #[test]
    fn a_time_is_an_instant_or_how_long_ago() {
        assert_eq!(instant("2026-12-01T10:00:00Z"), Ok(UnixMillis(1_796_119_200_000)));
        assert_eq!(instant("2026-12-01 10:00:00"), Ok(UnixMillis(1_796_119_200_000)));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
        let hour_ago = i64::try_from(now).expect("small") - 3_600_000;
        let read = instant("1h").expect("a time").0;
        assert!((hour_ago - 5_000..=hour_ago + 5_000).contains(&read));
        assert!(instant("yesterday").expect_err("no time").contains("2h for two hours ago"));
        assert!(instant("200y").expect_err("no time").contains("before 1970"));
        assert_eq!(time(Some(UnixMillis(1_796_119_200_000))), "2026-12-01T10:00:00.000Z");
        assert_eq!(time(None), "-");
    }
}
