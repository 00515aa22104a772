/** Copies the repository's WIT into the package that is being made. */

import { cp, rm } from "node:fs/promises";
import { fileURLToPath } from "node:url";

const here = (place) => fileURLToPath(new URL(place, import.meta.url));

await rm(here("../wit"), { recursive: true, force: true });
await cp(here("../../../wit"), here("../wit"), { recursive: true });
