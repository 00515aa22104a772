use std::cell::Cell;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use super::chain::Head;
use super::read::Line;
use super::*;
use crate::meter::record::Kind;

/// When logs are opened: before all records.
const NOW: u64 = 1_700_000_000_000;

/// A record of a tenant, unlike others by its number.
pub fn record(tenant: &str, number: u64) -> Record {
    Record {
        id: format!("00000000000000aa-{number:x}"),
        kind: Kind::Call,
        time: 1_800_000_000_000 + number,
        tenant: tenant.into(),
        function: Some("f".into()),
        calls: 1,
        wall_ns: number * 1_000,
        ..Record::default()
    }
}

/// A log, and the records that were read when it was opened.
fn open_after(folder: &Path, after: Position, segment_bytes: u64) -> anyhow::Result<(Ledger, Vec<Record>)> {
    let mut read = Vec::new();
    let ledger = Ledger::open(folder, after, NOW, segment_bytes, |record| read.push(record.clone()))?;
    Ok((ledger, read))
}

fn open(folder: &Path) -> (Ledger, Vec<Record>) {
    open_after(folder, Position::default(), 1 << 20).unwrap()
}

fn refusal(folder: &Path) -> String {
    format!("{:#}", open_after(folder, Position::default(), 1 << 20).err().unwrap())
}

/// Writes records 1 to `count`, of two tenants in turn.
fn write(ledger: &mut Ledger, numbers: std::ops::RangeInclusive<u64>) -> Vec<Record> {
    let records: Vec<_> = numbers.map(|number| record(["t", "u"][number as usize % 2], number)).collect();
    for record in &records {
        ledger.append(record).unwrap();
    }
    records
}

fn segment(folder: &Path, number: u64) -> PathBuf {
    segment::path(folder, number)
}

fn verify(folder: &Path) -> Result<verify::Verified, String> {
    verify::log(folder, None, |_, _| ()).map_err(|bad| bad.to_string())
}

#[test]
fn what_was_written_is_read_again_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let usage = folder.path().join("usage");
    let (mut ledger, read) = open(&usage);
    assert_eq!(read, []);
    let mut written = write(&mut ledger, 1..=5);
    let (end, heads) = (ledger.end(), (ledger.head("t"), ledger.head("u")));
    drop(ledger);
    let (mut ledger, read) = open(&usage);
    assert_eq!((read, ledger.end()), (written.clone(), end));
    assert_eq!((ledger.head("t"), ledger.head("u")), heads);
    assert_eq!((heads.0.unwrap().seq, heads.1.unwrap().seq, ledger.newest()), (2, 3, written[4].time));
    written.extend(write(&mut ledger, 6..=9));
    drop(ledger);
    let (_, read) = open_after(&usage, end, 1 << 20).unwrap();
    assert_eq!(read, written[5..], "only what is behind the place");
    let verified = verify(&usage).unwrap();
    assert_eq!((verified.records, verified.heads["t"].seq, verified.torn), (9, 4, None));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&usage), mode(&segment(&usage, 1))), (0o700, 0o600));
}

#[test]
fn a_torn_end_is_cut_off_wherever_it_is_torn() {
    let folder = tempfile::tempdir().unwrap();
    let (mut ledger, _) = open(folder.path());
    let written = write(&mut ledger, 1..=3);
    let whole = ledger.end().offset;
    write(&mut ledger, 4..=4);
    let bytes = fs::read(segment(folder.path(), 1)).unwrap();
    drop(ledger);
    for length in whole as usize..bytes.len() {
        fs::write(segment(folder.path(), 1), &bytes[..length]).unwrap();
        assert_eq!(verify(folder.path()).unwrap().torn.is_some(), length > whole as usize, "{length}");
        let (mut ledger, read) = open(folder.path());
        assert_eq!((read.as_slice(), ledger.end().offset), (&written[..], whole), "{length}");
        assert_eq!(fs::metadata(segment(folder.path(), 1)).unwrap().len(), whole);
        write(&mut ledger, 4..=4);
        assert_eq!(fs::read(segment(folder.path(), 1)).unwrap(), bytes, "as if nothing had been");
    }
}

#[test]
fn damage_is_named_and_nothing_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let (mut ledger, _) = open(folder.path());
    write(&mut ledger, 1..=2);
    let at = ledger.end().offset;
    write(&mut ledger, 3..=4);
    drop(ledger);
    let path = segment(folder.path(), 1);
    let whole = fs::read(&path).unwrap();
    for byte in at as usize..at as usize + 200 {
        let mut bytes = whole.clone();
        bytes[byte] ^= 4;
        fs::write(&path, &bytes).unwrap();
        let (refusal, verified) = (refusal(folder.path()), verify(folder.path()).unwrap_err());
        let named = format!("{} is damaged at byte {at}", path.display());
        assert!(refusal.contains(&named) && refusal.contains("docs/metering.md"), "{refusal}");
        assert!(verified.contains(&named), "{verified}");
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
    // The first frame, too.
    for byte in 0..40 {
        let mut bytes = whole.clone();
        bytes[byte] ^= 4;
        fs::write(&path, bytes).unwrap();
        assert!(refusal(folder.path()).contains("is damaged at byte 0"), "{byte}");
    }
}

#[test]
fn a_part_of_a_record_in_an_older_segment_is_damage() {
    let folder = tempfile::tempdir().unwrap();
    let (mut ledger, _) = open_after(folder.path(), Position::default(), 1_000).unwrap();
    write(&mut ledger, 1..=20);
    assert!(ledger.segments() > 2);
    let path = segment(folder.path(), 1);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    assert!(refusal(folder.path()).contains("ends in a part of a frame"));
    assert!(verify(folder.path()).unwrap_err().contains("ends in a part of a frame"));
}

#[test]
fn segments_begin_where_the_one_before_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (mut ledger, _) = open_after(folder.path(), Position::default(), 1_000).unwrap();
    let written = write(&mut ledger, 1..=30);
    let segments = ledger.segments() as u64;
    assert!(segments > 3 && ledger.bytes() > 3_000);
    assert_eq!(ledger.oldest().unwrap().number, 1);
    for number in 1..=segments {
        let bytes = fs::metadata(segment(folder.path(), number)).unwrap().len();
        assert!(bytes <= 1_000, "{bytes}");
    }
    let (end, bytes) = (ledger.end(), ledger.bytes());
    drop(ledger);
    let (ledger, read) = open_after(folder.path(), Position::default(), 1_000).unwrap();
    assert_eq!((read, ledger.end(), ledger.bytes()), (written.clone(), end, bytes));
    assert_eq!(verify(folder.path()).unwrap().records, 30);

    // The oldest go: what is left is whole, and the tenants' numbers go on.
    for number in 1..=2 {
        fs::remove_file(segment(folder.path(), number)).unwrap();
    }
    let verified = verify(folder.path()).unwrap();
    assert!(verified.records < 30 && verified.since > 0);
    assert_eq!((verified.heads["t"].seq, verified.heads["u"].seq), (15, 15));
    // One in the middle does not go unseen.
    fs::remove_file(segment(folder.path(), segments - 1)).unwrap();
    let why = verify(folder.path()).unwrap_err();
    assert!(why.contains("of tenant t are missing before it"), "{why}");
}

#[test]
fn closed_segments_have_the_time_of_their_newest_record() {
    let folder = tempfile::tempdir().unwrap();
    let (mut ledger, _) = open_after(folder.path(), Position::default(), 1_000).unwrap();
    let written = write(&mut ledger, 1..=10);
    let closed = |ledger: &mut Ledger| {
        std::iter::from_fn(|| {
            let oldest = ledger.oldest();
            ledger.removed_oldest();
            oldest
        })
        .collect::<Vec<_>>()
    };
    let end = ledger.end();
    let before = closed(&mut ledger);
    assert!(before.len() > 1 && before.iter().all(|closed| closed.newest > written[0].time));
    drop(ledger);
    let (mut ledger, read) = open_after(folder.path(), end, 1_000).unwrap();
    assert_eq!((closed(&mut ledger), read), (before, vec![]), "without being read");
}

#[test]
fn a_segment_that_was_never_finished_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let (mut ledger, _) = open_after(folder.path(), Position::default(), 1_000).unwrap();
    let written = write(&mut ledger, 1..=3);
    let (end, next) = (ledger.end(), ledger.end().segment + 1);
    drop(ledger);
    for bytes in [&[][..], &[7; 5], &[0; 4096]] {
        fs::write(segment(folder.path(), next), bytes).unwrap();
        let (ledger, read) = open_after(folder.path(), Position::default(), 1_000).unwrap();
        assert_eq!((read, ledger.end()), (written.clone(), end));
        assert!(!segment(folder.path(), next).exists());
    }
}

#[test]
fn nothing_is_written_before_the_place_that_is_summed_up() {
    let folder = tempfile::tempdir().unwrap();
    let after = Position { segment: 3, offset: 500 };
    // A restored backup: no log at all.
    let (mut ledger, read) = open_after(folder.path(), after, 1_000).unwrap();
    assert_eq!((read, ledger.end().segment), (vec![], 4));
    let written = write(&mut ledger, 1..=2);
    assert!(ledger.end() > after);
    drop(ledger);
    let (ledger, read) = open_after(folder.path(), after, 1_000).unwrap();
    assert_eq!(read, written);
    // One that has lost its end.
    let after = Position { offset: ledger.end().offset + 1, ..ledger.end() };
    drop(ledger);
    let (ledger, read) = open_after(folder.path(), after, 1_000).unwrap();
    assert_eq!((read, ledger.end().segment), (vec![], 5));
    let verified = verify(folder.path()).unwrap();
    assert_eq!((verified.records, verified.since), (2, written[1].time), "what is before is not all there");
}

thread_local! {
    /// Bytes that the disk of this test still has.
    static ROOM: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Sets how many bytes the disk takes.
pub fn room(bytes: usize) {
    ROOM.set(bytes);
}

/// Writes as a disk that has so much room: what fits, and then nothing.
pub fn put(file: &File, bytes: &[u8], at: u64) -> io::Result<usize> {
    let room = ROOM.get();
    if room == 0 {
        return Err(io::ErrorKind::StorageFull.into());
    }
    let written = file.write_at(&bytes[..bytes.len().min(room)], at)?;
    ROOM.set(room - written);
    Ok(written)
}

#[test]
fn what_the_disk_did_not_take_is_not_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let (mut ledger, _) = open(folder.path());
    ledger.put_with(put);
    let mut written = write(&mut ledger, 1..=3);
    let (end, head) = (ledger.end(), ledger.head("t"));
    let another = record("t", 4);
    for bytes in 0..100 {
        room(bytes);
        let error = ledger.append(&another).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!((ledger.end(), ledger.head("t")), (end, head));
        assert_eq!(open(folder.path()).1, written, "as the next start would find it");
    }
    room(usize::MAX);
    ledger.append(&another).unwrap();
    written.push(another);
    assert_eq!(open(folder.path()).1, written);
    assert_eq!(verify(folder.path()).unwrap().records, 4);
}

/// The lines of a log's only segment, as an export has them.
fn lines(folder: &Path, tenant: &str) -> Vec<String> {
    let mut reader = Reader::open(folder, 1).unwrap();
    let mut lines = vec![];
    while let Some(line) = reader.next().unwrap() {
        if line.brief().unwrap().tenant == tenant {
            let (seq, hash, record) = (line.seq, line.hash, line.record.get());
            lines.push(format!(r#"{{"seq":{seq},"hash":"{hash}","record":{record}}}"#));
        }
    }
    lines
}

#[test]
fn a_changed_a_removed_and_an_exchanged_record_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let (mut ledger, _) = open(folder.path());
    write(&mut ledger, 1..=20);
    let lines = lines(folder.path(), "u");
    let export = |lines: &[String]| verify::export(lines.join("\n").as_bytes(), None);
    let whole = export(&lines).unwrap();
    assert_eq!((whole.records, whole.first, whole.is_anchored), (10, 1, true));
    assert_eq!((whole.tenant.as_str(), whole.head), ("u", ledger.head("u").unwrap()));

    let changed = |from: &str, to: &str| {
        let mut changed = lines.clone();
        assert!(changed[4].contains(from), "{}", changed[4]);
        changed[4] = changed[4].replace(from, to);
        export(&changed).unwrap_err()
    };
    let not_written = "line 5: record 5 of tenant u is not what was written";
    assert!(changed("\"wall_ns\":9000", "\"wall_ns\":9001").contains(not_written));
    assert!(changed("\"calls\":1", "\"calls\":2").contains(not_written));
    assert!(changed("\"tenant\":\"u\"", "\"tenant\":\"v\"").contains("record 1 of tenant v is missing"));
    let mut removed = lines.clone();
    removed.remove(4);
    assert!(
        export(&removed).unwrap_err().contains("line 5: record 5 of tenant u is missing: the next one is 6")
    );
    let mut exchanged = lines.clone();
    exchanged.swap(4, 5);
    assert!(export(&exchanged).unwrap_err().contains("line 5: record 5 of tenant u is missing"));
    let mut twice = lines.clone();
    twice.insert(5, lines[4].clone());
    assert!(export(&twice).unwrap_err().contains("line 6: record 5 of tenant u comes after its record 5"));

    // From the middle on, with what was before it and without.
    let from = export(&lines[4..]).unwrap();
    assert_eq!((from.records, from.first, from.is_anchored), (6, 5, false));
    let before: Line<'_> = serde_json::from_str(&lines[3]).unwrap();
    let Head { seq, hash } = before.head();
    let anchored = [&[format!(r#"{{"seq":{seq},"hash":"{hash}"}}"#)], &lines[4..]].concat();
    assert!(export(&anchored).unwrap().is_anchored);
    let mut wrong = anchored.clone();
    wrong[1] = wrong[1].replace("\"calls\":1", "\"calls\":2");
    assert!(export(&wrong).unwrap_err().contains("line 2: record 5 of tenant u is not what was written"));
    assert!(export(&[]).is_err());

    // The end is missing, or all was made anew: only what was noted tells.
    let noted = |seq, hash: &str, lines: &[String]| {
        let noted = verify::Noted { tenant: None, head: Head { seq, hash: hash.parse().unwrap() } };
        verify::export(lines.join("\n").as_bytes(), Some(noted)).map(|export| export.records)
    };
    let (newest, other) = (whole.head.hash.to_string(), "0".repeat(64));
    assert_eq!(noted(10, &newest, &lines), Ok(10));
    assert!(
        noted(10, &newest, &lines[..9]).unwrap_err().contains("record 10 was noted, and the newest is 9")
    );
    assert!(noted(10, &other, &lines).unwrap_err().contains("is another than the one that was noted"));
}

#[test]
fn an_id_that_comes_twice_and_a_time_that_goes_back_are_found() {
    for (second, said) in [
        (Record { id: record("t", 1).id, ..record("t", 2) }, "has an id that is there already"),
        (Record { id: "other".to_owned(), ..record("t", 0) }, "is of a time before"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (mut ledger, _) = open(folder.path());
        ledger.append(&record("t", 1)).unwrap();
        ledger.append(&second).unwrap();
        let why = verify(folder.path()).unwrap_err();
        assert!(why.contains(said), "{why}");
    }
}
