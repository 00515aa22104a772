-- When each key was last used, in seconds since 1970. Apart from the keys, because it is no change of theirs.
CREATE TABLE key_uses (
    id TEXT NOT NULL PRIMARY KEY,
    used BIGINT NOT NULL
);
