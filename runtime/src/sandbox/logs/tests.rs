use super::*;

fn log(folder: &tempfile::TempDir, config: LogConfig) -> Arc<Log> {
    Arc::new(Log::new(folder.path().join("f.jsonl"), config, None))
}

fn pen(log: &Arc<Log>, limits: &Limits) -> CallLog {
    CallLog::new(Arc::clone(log), 1, limits, Arc::default())
}

fn texts(log: &Log) -> Vec<String> {
    log.recent(100).unwrap().into_iter().map(|line| line.text).collect()
}

#[test]
fn writes_become_lines() {
    let folder = tempfile::tempdir().unwrap();
    let log = log(&folder, LogConfig::default());
    let call = CallLog::new(Arc::clone(&log), 3, &Limits::default(), Arc::default());
    call.begin(7, None);
    call.write(Source::Stdout, b"one\ntw");
    call.write(Source::Stderr, b"other\n");
    call.write(Source::Stdout, b"o\n\nthree");
    assert_eq!(texts(&log), ["one", "other", "two", ""]);
    call.finish();
    let last = log.recent(1).unwrap().remove(0);
    assert_eq!((last.text.as_str(), last.source, last.revision, last.call), ("three", Source::Stdout, 3, 7));
}

#[test]
fn a_call_is_cut_at_its_cap_and_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let log = log(&folder, LogConfig { line_bytes: Size::bytes(4), ..LogConfig::default() });
    let call = pen(&log, &Limits { log_bytes: Size::bytes(8 + 2 * LINE), ..Limits::default() });
    call.write(Source::Stdout, b"abcd\nef\n");
    assert_eq!(texts(&log), ["abcd", "ef"], "exactly at the cap nothing is lost");
    call.write(Source::Stdout, b"g");
    call.write(Source::Stderr, b"h");
    assert!(texts(&log)[2].contains("136 bytes, the most it may; the rest is lost"));
    assert_eq!(texts(&log).len(), 3);
    call.begin(2, None);
    call.write(Source::Stdout, b"123456789");
    assert_eq!(texts(&log)[3..], ["1234", "5678"], "the next call has a cap of its own");
}

#[test]
fn a_seconds_worth_comes_back_in_a_second() {
    let (mut rate, start) = (Rate::default(), Instant::now());
    let at = |millis: u64| start + std::time::Duration::from_millis(millis);
    let mut take = |now, wanted: u64| {
        let taken = rate.left(now, 1000).min(wanted);
        rate.spend(taken);
        taken
    };
    assert_eq!(take(at(0), 600), 600);
    assert_eq!(take(at(0), 600), 400, "no more than a second's worth at once");
    assert_eq!(take(at(100), 600), 100);
    assert_eq!(take(at(100), 600), 0);
    assert_eq!(take(at(9000), 6000), 1000, "nor after a long silence");
    // Asking often does not make time pass unseen.
    let often: u64 = (1..=1000).map(|step| take(at(9000 + step), 5)).sum();
    assert_eq!(often, 1000);
}

#[test]
fn empty_lines_are_not_free() {
    let folder = tempfile::tempdir().unwrap();
    let log = log(&folder, LogConfig::default());
    let call = pen(&log, &Limits { log_bytes: Size::bytes(10 * (1 + LINE)), ..Limits::default() });
    call.write(Source::Stdout, &[b'\n'; 65_536]);
    assert_eq!(texts(&log).len(), 11);
    assert!(texts(&log)[10].contains("the rest is lost"));
}

#[test]
fn a_function_that_logs_too_fast_is_told_once_in_a_call() {
    let folder = tempfile::tempdir().unwrap();
    let log = log(&folder, LogConfig::default());
    let call = pen(&log, &Limits { log_bytes_per_second: Size::bytes(0), ..Limits::default() });
    for _ in 0..3 {
        call.write(Source::Stdout, b"x\n");
    }
    assert_eq!(
        texts(&log),
        ["this function has logged 0 bytes within a second, the most it may; the rest is lost"]
    );
    call.begin(2, None);
    call.write(Source::Stderr, b"y\n");
    assert_eq!(texts(&log).len(), 2);
}

#[test]
fn a_line_without_an_end_is_its_own_calls() {
    let folder = tempfile::tempdir().unwrap();
    let log = log(&folder, LogConfig::default());
    let call = pen(&log, &Limits::default());
    call.begin(1, None);
    call.write(Source::Stdout, b"half");
    call.begin(2, None);
    call.write(Source::Stdout, b"whole\n");
    let lines = log.recent(10).unwrap();
    let lines: Vec<_> = lines.iter().map(|line| (line.call, line.text.as_str())).collect();
    assert_eq!(lines, [(1, "half"), (2, "whole")]);
}

#[test]
fn followers_get_the_past_they_ask_for_and_all_that_comes() {
    let folder = tempfile::tempdir().unwrap();
    let log = log(&folder, LogConfig::default());
    let call = pen(&log, &Limits::default());
    call.write(Source::Stdout, b"one\ntwo\n");
    let (past, mut new) = log.follow(1).unwrap();
    assert_eq!(past.len(), 1);
    assert_eq!(log.recent(0).unwrap(), []);
    call.write(Source::Stdout, b"three\n");
    assert_eq!(new.try_recv().unwrap().text, "three");
    log.remove();
    call.write(Source::Stdout, b"late\n");
    assert_eq!(texts(&log), [""; 0], "a removed log stays removed");
}

#[test]
fn a_full_file_becomes_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let config = LogConfig { file_bytes: Size::bytes(400), ..LogConfig::default() };
    let log = log(&folder, config);
    let call = pen(&log, &Limits::default());
    for number in 0..40 {
        call.write(Source::Stdout, format!("line {number}\n").as_bytes());
    }
    let texts = texts(&log);
    assert_eq!(texts.last().unwrap(), "line 39");
    assert!(texts.len() >= 3 && texts.len() < 10, "{texts:?}");
    let size = |path: PathBuf| fs::metadata(path).unwrap().len();
    assert!(size(log.path.clone()) <= 400 && size(log.old()) <= 400);
}
