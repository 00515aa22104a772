//! Whether the store can write: tried with a file and with a transaction, when somebody asks, and not more often than every
//! few seconds.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::StoreError;
use super::database::Pool;

/// How long an answer holds.
const HOLDS: Duration = Duration::from_secs(2);

/// A disk that takes longer cannot write.
const PATIENCE: Duration = Duration::from_secs(5);

/// Takes a block of any file system.
const BLOCK: [u8; 4096] = [0; 4096];

/// The last answer and when it was found. Whoever asks meanwhile waits for the one who tries.
#[derive(Default)]
pub struct Probe(Mutex<Option<(Instant, Result<(), String>)>>);

impl Probe {
    /// That the store can write.
    ///
    /// # Errors
    /// Why it cannot.
    pub async fn ask(&self, database: &Pool, tmp: &Path) -> Result<(), String> {
        let mut last = self.0.lock().await;
        if let Some((at, answer)) = &*last
            && at.elapsed() < HOLDS
        {
            return answer.clone();
        }
        let tried = tokio::time::timeout(PATIENCE, write(database, tmp)).await;
        let answer = match tried {
            Ok(written) => written.map_err(|error| error.to_string()),
            Err(_) => Err(format!("the disk took longer than {PATIENCE:?}")),
        };
        let before = last.as_ref().is_none_or(|(_, answer)| answer.is_ok());
        match &answer {
            Err(error) if before => tracing::error!(error, "the store cannot write"),
            Ok(()) if !before => tracing::info!("the store can write again"),
            _ => {}
        }
        *last = Some((Instant::now(), answer.clone()));
        answer
    }
}

async fn write(database: &Pool, tmp: &Path) -> Result<(), StoreError> {
    let tmp = tmp.to_owned();
    let file = move || tempfile::tempfile_in(tmp)?.write_all(&BLOCK);
    tokio::task::spawn_blocking(file).await.map_err(|error| StoreError::Other(error.to_string()))??;
    let write = "INSERT INTO probe AS kept (id, writes) VALUES (1, 1) \
                 ON CONFLICT (id) DO UPDATE SET writes = kept.writes + 1";
    sqlx::query(write).execute(database).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::database;
    use super::*;

    #[tokio::test]
    async fn an_answer_holds_for_a_while_and_no_longer() {
        let data = tempfile::tempdir().unwrap();
        let (database, tmp) = (database::open(data.path()).await.unwrap(), data.path().join("tmp"));
        let writes = async || {
            let row = sqlx::query_scalar::<_, i64>("SELECT writes FROM probe").fetch_optional(&database);
            row.await.unwrap().unwrap_or_default()
        };
        let probe = Probe::default();
        let later = async || {
            let mut last = probe.0.lock().await;
            let (at, _) = last.as_mut().unwrap();
            *at -= HOLDS;
        };
        assert!(probe.ask(&database, &tmp).await.is_err(), "there is no such folder");
        std::fs::create_dir(&tmp).unwrap();
        assert!(probe.ask(&database, &tmp).await.is_err(), "as of a moment ago");
        assert_eq!(writes().await, 0);
        later().await;
        for _ in 0..10 {
            probe.ask(&database, &tmp).await.unwrap();
        }
        assert_eq!(writes().await, 1);
        later().await;
        probe.ask(&database, &tmp).await.unwrap();
        assert_eq!(writes().await, 2);
    }
}
