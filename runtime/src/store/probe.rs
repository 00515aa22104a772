//! Whether the store can write: tried with a file and with a transaction, when somebody asks, and not more often than every
//! few seconds.
//!
//! Anybody may ask, and go away. So a try is a task of its own, which ends whoever still waits for it, and while one is under
//! way there is no other: a disk that hangs has one try stuck, not one for each that asked.

use std::io::Write;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::StoreError;
use super::database::Pool;

/// How long an answer holds.
const HOLDS: Duration = Duration::from_secs(2);

/// A disk that takes longer cannot write.
const PATIENCE: Duration = Duration::from_secs(5);

/// Takes a block of any file system.
const BLOCK: [u8; 4096] = [0; 4096];

/// That the store can write, or why it cannot.
type Answer = Result<(), String>;

/// A try, as it stands.
#[derive(Default)]
struct Try {
    /// What is known of it: one that takes too long has an answer before it ends.
    answer: Option<Answer>,
    ended: Option<Instant>,
}

/// The last try, if there was one.
#[derive(Default)]
pub struct Probe(Mutex<Option<watch::Receiver<Try>>>);

impl Probe {
    /// That the store can write, which `write` tries.
    ///
    /// # Errors
    /// Why it cannot.
    pub async fn ask<F>(&self, write: impl FnOnce() -> F) -> Answer
    where
        F: Future<Output = Result<(), StoreError>> + Send + 'static,
    {
        let mut last = {
            let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match &*last {
                Some(last) if holds(last) => last.clone(),
                before => {
                    let before = before.as_ref().and_then(|last| last.borrow().answer.clone());
                    let (tells, new) = watch::channel(Try::default());
                    tokio::spawn(find(write(), before.unwrap_or(Ok(())), tells));
                    *last = Some(new.clone());
                    new
                }
            }
        };
        let found = last.wait_for(|it| it.answer.is_some()).await;
        let answer = found.ok().and_then(|found| found.answer.clone());
        answer.unwrap_or_else(|| Err("the try to write ended without an answer".to_owned()))
    }
}

/// Whether there need be no other try than this one: it is under way, or has just ended.
fn holds(last: &watch::Receiver<Try>) -> bool {
    // One whose teller has gone is not under way.
    let is_under_way = last.has_changed().is_ok();
    last.borrow().ended.map_or(is_under_way, |at| at.elapsed() < HOLDS)
}

/// Tries, and tells what is found: to those who ask, and in the log where it is not as `before`.
async fn find(
    write: impl Future<Output = Result<(), StoreError>>,
    mut before: Answer,
    tells: watch::Sender<Try>,
) {
    let mut tell = |answer: Answer, ended: Option<Instant>| {
        match &answer {
            Err(error) if before.is_ok() => tracing::error!(error, "the store cannot write"),
            Ok(()) if before.is_err() => tracing::info!("the store can write again"),
            _ => {}
        }
        before = answer.clone();
        tells.send_replace(Try { answer: Some(answer), ended });
    };
    let mut write = pin!(write);
    let written = match tokio::time::timeout(PATIENCE, &mut write).await {
        Ok(written) => written,
        Err(_) => {
            tell(Err(format!("the disk takes longer than {PATIENCE:?}")), None);
            write.await
        }
    };
    tell(written.map_err(|error| error.to_string()), Some(Instant::now()));
}

/// Writes a file that is gone again, and a row.
pub async fn write(database: Pool, tmp: PathBuf) -> Result<(), StoreError> {
    let file = move || tempfile::tempfile_in(tmp)?.write_all(&BLOCK);
    tokio::task::spawn_blocking(file).await.map_err(|error| StoreError::Other(error.to_string()))??;
    let write = "INSERT INTO probe AS kept (id, writes) VALUES (1, 1) \
                 ON CONFLICT (id) DO UPDATE SET writes = kept.writes + 1";
    sqlx::query(write).execute(&database).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;

    use super::super::database;
    use super::*;

    #[tokio::test]
    async fn a_try_needs_the_folder_and_writes_a_row() {
        let data = tempfile::tempdir().unwrap();
        let (database, tmp) = (database::open(data.path()).await.unwrap(), data.path().join("tmp"));
        let writes = async || {
            let row = sqlx::query_scalar::<_, i64>("SELECT writes FROM probe").fetch_optional(&database);
            row.await.unwrap().unwrap_or_default()
        };
        assert!(write(database.clone(), tmp.clone()).await.is_err(), "there is no such folder");
        assert_eq!(writes().await, 0);
        std::fs::create_dir(&tmp).unwrap();
        for written in 1..3 {
            write(database.clone(), tmp.clone()).await.unwrap();
            assert_eq!(writes().await, written);
        }
    }

    /// A disk whose tries are counted, and end when they are let.
    #[derive(Clone)]
    struct Disk {
        tries: Arc<AtomicUsize>,
        lets: Arc<Semaphore>,
    }

    impl Disk {
        fn new(lets: usize) -> Self {
            Self { tries: Arc::default(), lets: Arc::new(Semaphore::new(lets)) }
        }

        async fn asked(&self, probe: &Probe) -> Answer {
            let disk = self.clone();
            let write = || {
                disk.tries.fetch_add(1, Ordering::SeqCst);
                async move {
                    disk.lets
                        .acquire()
                        .await
                        .map(|let_go| let_go.forget())
                        .map_err(|error| StoreError::Full(error.to_string()))
                }
            };
            probe.ask(write).await
        }

        fn tries(&self) -> usize {
            self.tries.load(Ordering::SeqCst)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_holds_for_a_while_and_no_longer() {
        let (disk, probe) = (Disk::new(2), Probe::default());
        for tries in 1..=2 {
            for _ in 0..10 {
                assert_eq!(disk.asked(&probe).await, Ok(()));
            }
            assert_eq!(disk.tries(), tries);
            tokio::time::advance(HOLDS).await;
        }
        disk.lets.close();
        assert!(disk.asked(&probe).await.is_err());
        disk.asked(&probe).await.unwrap_err();
        assert_eq!(disk.tries(), 3, "a failure holds as well");
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_go_away_leave_one_try() {
        let (disk, probe) = (Disk::new(0), Probe::default());
        for _ in 0..10 {
            let gone = tokio::time::timeout(Duration::from_millis(1), disk.asked(&probe)).await;
            assert!(gone.is_err());
        }
        disk.lets.add_permits(1);
        assert_eq!(disk.asked(&probe).await, Ok(()));
        assert_eq!(disk.tries(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_hangs_has_one_try_however_long_and_often_it_is_asked() {
        let (disk, probe) = (Disk::new(0), Probe::default());
        for _ in 0..10 {
            let slow = disk.asked(&probe).await.unwrap_err();
            assert!(slow.contains("takes longer than 5s"), "{slow}");
            tokio::time::advance(Duration::from_secs(60)).await;
        }
        assert_eq!(disk.tries(), 1);
        disk.lets.add_permits(2);
        let mut last = probe.0.lock().unwrap().clone().unwrap();
        last.wait_for(|it| it.ended.is_some()).await.unwrap();
        assert_eq!(disk.asked(&probe).await, Ok(()), "it came back");
        assert_eq!(disk.tries(), 1);
        tokio::time::advance(HOLDS).await;
        assert_eq!(disk.asked(&probe).await, Ok(()));
        assert_eq!(disk.tries(), 2);
    }
}
