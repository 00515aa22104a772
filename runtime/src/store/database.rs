//! The embedded database: SQLite, in one file. What only SQLite knows is here; the queries of the other files are SQL that
//! PostgreSQL takes as well.
//!
//! A commit is on disk when it returns: the write-ahead log is synced each time (`synchronous = FULL`). All connections
//! are made at the start and kept, because a full disk may refuse new ones.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow};
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous, SqliteTransactionManager,
};
use sqlx::{Connection as _, SqlSafeStr};
use sqlx_core::transaction::TransactionManager;

use super::StoreError;

pub type Pool = sqlx::SqlitePool;
pub type Connection = sqlx::SqliteConnection;
pub type Transaction = sqlx::Transaction<'static, sqlx::Sqlite>;

/// The database, in the data directory.
pub const FILE: &str = "weir.db";

/// Its write-ahead log, beside it.
pub const LOG: &str = "weir.db-wal";

/// One writes at a time; the others read meanwhile.
const CONNECTIONS: u32 = 4;

/// How long a query waits for a connection, and for one that writes.
const WAIT: Duration = Duration::from_secs(5);

/// What makes the schema, in order: version, description, statements. What has been released is not changed any more.
const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "definitions", include_str!("../../migrations/0001_definitions.sql")),
    (2, "audit", include_str!("../../migrations/0002_audit.sql")),
    (3, "key_uses", include_str!("../../migrations/0003_key_uses.sql")),
    (4, "usage", include_str!("../../migrations/0004_usage.sql")),
    (5, "money", include_str!("../../migrations/0005_money.sql")),
    (6, "webhook", include_str!("../../migrations/0006_webhook.sql")),
];

/// Opens the database of a data directory, or makes it, and brings its schema up to date.
///
/// # Errors
/// A file that is no database or cannot be written; a schema that this version does not know. The text names the file.
pub async fn open(root: &Path) -> anyhow::Result<Pool> {
    let path = root.join(FILE);
    let cannot = || format!("the database {} cannot be opened", path.display());
    // Readable by nobody else: hashes of keys are in it. SQLite gives the files beside it the same permissions.
    let mut private = OpenOptions::new();
    private.create(true).truncate(false).write(true).mode(0o600).open(&path).with_context(cannot)?;
    let options = SqliteConnectOptions::new()
        .filename(&path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(WAIT);
    // One that changes the journal's mode waits for nobody, so one does it before there are others.
    let first = Connection::connect_with(&options).await.with_context(cannot)?;
    let pool = SqlitePoolOptions::new()
        .min_connections(CONNECTIONS)
        .max_connections(CONNECTIONS)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .acquire_timeout(WAIT)
        .after_release(|connection, _| Box::pin(settle(connection)))
        .connect_with(options)
        .await
        .with_context(cannot)?;
    first.close().await.with_context(cannot)?;
    migrate(&pool, MIGRATIONS).await.map_err(|error| match error {
        MigrateError::VersionMissing(version) => {
            let newest = MIGRATIONS.iter().map(|(version, ..)| *version).max().unwrap_or_default();
            anyhow!(
                "the database {} has schema {version}, and this weir knows schemas up to {newest}: a newer weir has \
                 written it; use that one, or a newer one still",
                path.display()
            )
        }
        MigrateError::VersionMismatch(version) => anyhow!(
            "the database {} has another schema {version} than this weir's; use the weir that has written it",
            path.display()
        ),
        other => anyhow::Error::from(other)
            .context(format!("the database {} cannot be brought up to date", path.display())),
    })?;
    Ok(pool)
}

/// Writes a copy of the database as of one moment, while others read and write. Readable by nobody else.
///
/// # Errors
/// When the disk has no room for it.
pub async fn copy(pool: &Pool, into: &Path) -> Result<(), StoreError> {
    OpenOptions::new().create_new(true).write(true).mode(0o600).open(into)?;
    let name = into.to_str().ok_or_else(|| StoreError::Other(format!("{} is not text", into.display())))?;
    sqlx::query("VACUUM INTO $1").bind(name).execute(pool).await?;
    Ok(())
}

/// Has a connection that comes back be as before. SQLite ends a transaction itself when the disk fails; the rollback that
/// follows finds none, and the connection goes on to count one. See <https://www.sqlite.org/lang_transaction.html>.
async fn settle(connection: &mut Connection) -> Result<bool, sqlx::Error> {
    // After this all that was asked of it is done.
    connection.ping().await?;
    if connection.is_in_transaction() {
        sqlx::query("BEGIN").execute(&mut *connection).await?;
        SqliteTransactionManager::rollback(connection).await?;
    }
    Ok(true)
}

/// Begins a transaction that will write. It waits for the one that does so now: one that only found out when it first
/// writes that another was before it could not go on.
///
/// # Errors
/// When it had to wait too long, or the disk does not take changes.
pub async fn begin(pool: &Pool) -> Result<Transaction, sqlx::Error> {
    pool.begin_with("BEGIN IMMEDIATE").await
}

/// Runs the migrations that have not run, each whole or not at all.
async fn migrate(pool: &Pool, migrations: &[(i64, &'static str, &'static str)]) -> Result<(), MigrateError> {
    let migration = |(version, description, statements): &(i64, &'static str, &'static str)| {
        let kind = MigrationType::Simple;
        Migration::new(*version, (*description).into(), kind, (*statements).into_sql_str(), false)
    };
    Migrator::with_migrations(migrations.iter().map(migration).collect()).run(pool).await
}

/// By SQLite's result codes; see <https://www.sqlite.org/rescode.html>.
impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        let text = error.to_string();
        match error {
            sqlx::Error::Io(error) => error.into(),
            sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => {
                Self::Unavailable(text)
            }
            sqlx::Error::Database(error) => {
                // The extended code; its low byte is the primary one.
                match error.code().and_then(|code| code.parse::<u32>().ok()).map(|code| code & 0xff) {
                    Some(SQLITE_FULL) => Self::Full(text),
                    Some(
                        SQLITE_PERM | SQLITE_BUSY | SQLITE_LOCKED | SQLITE_READONLY | SQLITE_IOERR
                        | SQLITE_CANTOPEN,
                    ) => Self::Unavailable(text),
                    _ => Self::Other(text),
                }
            }
            _ => Self::Other(text),
        }
    }
}

const SQLITE_PERM: u32 = 3;
const SQLITE_BUSY: u32 = 5;
const SQLITE_LOCKED: u32 = 6;
const SQLITE_READONLY: u32 = 8;
const SQLITE_IOERR: u32 = 10;
const SQLITE_FULL: u32 = 13;
const SQLITE_CANTOPEN: u32 = 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_migration_in_the_tree_is_run() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        let named = |(version, description, _): &(i64, &str, &str)| format!("{version:04}_{description}.sql");
        assert_eq!(files, MIGRATIONS.iter().map(named).collect::<Vec<_>>());
    }

    async fn setting(pool: &Pool, pragma: &'static str) -> String {
        use sqlx::Row;
        let row = sqlx::query(pragma).fetch_one(pool).await.unwrap();
        row.try_get::<String, _>(0).unwrap_or_else(|_| row.get::<i64, _>(0).to_string())
    }

    #[tokio::test]
    async fn commits_are_synced_and_the_file_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let data = tempfile::tempdir().unwrap();
        let pool = open(data.path()).await.unwrap();
        assert_eq!(setting(&pool, "PRAGMA journal_mode").await, "wal");
        assert_eq!(setting(&pool, "PRAGMA synchronous").await, "2", "FULL");
        assert_eq!(setting(&pool, "PRAGMA foreign_keys").await, "1");
        for file in [FILE, LOG, "weir.db-shm"] {
            let mode = std::fs::metadata(data.path().join(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
    }

    #[tokio::test]
    async fn a_newer_database_is_refused_and_left_alone() {
        let data = tempfile::tempdir().unwrap();
        let pool = open(data.path()).await.unwrap();
        let newer = [MIGRATIONS, &[(77, "later", "CREATE TABLE later (id BIGINT)")]].concat();
        migrate(&pool, &newer).await.unwrap();
        pool.close().await;
        let refusal = open(data.path()).await.unwrap_err().to_string();
        assert!(refusal.contains("weir.db has schema 77"), "{refusal}");
        let known = format!("up to {}", MIGRATIONS.last().unwrap().0);
        assert!(refusal.contains(&known), "{refusal}");
        let options = SqliteConnectOptions::new().filename(data.path().join(FILE));
        let pool = Pool::connect_with(options).await.unwrap();
        migrate(&pool, &newer).await.unwrap();
        let mut other = MIGRATIONS.to_vec();
        other[0].2 = "CREATE TABLE other (id BIGINT)";
        assert!(matches!(migrate(&pool, &other).await, Err(MigrateError::VersionMissing(77))));
    }

    #[tokio::test]
    async fn what_is_no_database_is_named() {
        let data = tempfile::tempdir().unwrap();
        let bytes = "no database, but long enough to have a head that could be one's".repeat(100);
        std::fs::write(data.path().join(FILE), &bytes).unwrap();
        let refusal = format!("{:#}", open(data.path()).await.unwrap_err());
        assert!(refusal.contains("weir.db cannot be opened"), "{refusal}");
        assert_eq!(std::fs::read_to_string(data.path().join(FILE)).unwrap(), bytes);
    }
}
