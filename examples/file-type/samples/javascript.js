'use strict';

const fs = require('fs');

/** Reads a CSV of readings and returns the mean level of each station. */
function meanLevels(path) {
  const [header, ...rows] = fs.readFileSync(path, 'utf8').trim().split('\n');
  const columns = header.split(',');
  const totals = new Map();
  for (const row of rows) {
    const values = row.split(',');
    const station = values[columns.indexOf('station')];
    const level = Number(values[columns.indexOf('level_cm')]);
    const { sum = 0, count = 0 } = totals.get(station) ?? {};
    totals.set(station, { sum: sum + level, count: count + 1 });
  }
  return Object.fromEntries([...totals].map(([name, { sum, count }]) => [name, sum / count]));
}

module.exports = { meanLevels };

if (require.main === module) {
  console.log(JSON.stringify(meanLevels(process.argv[2]), null, 2));
}
