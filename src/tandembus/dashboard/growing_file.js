// A file that grows outside the page's memory, until it is saved under a name. It is on the disk, where the browser lets a
// page keep files (over TLS, or from this machine); else its parts are handed over to the browser one by one.

const PREFIX = "tandembus-export-";
/** Saving copies it, which takes a while with a large one; nobody tells when that is done. */
const KEPT_MS = 10 * 60 * 1000;
const PART_BYTES = 4 * 1024 * 1024;

/** { write(bytes), finish() -> Blob, discard() } */
export async function newFile() {
  try {
    return await onDisk();
  } catch {
    return inBrowser();
  }
}

async function onDisk() {
  const folder = await navigator.storage.getDirectory();
  const name = `${PREFIX}${crypto.randomUUID()}`;
  const handle = await folder.getFileHandle(name, { create: true });
  const writer = await handle.createWritable();
  return {
    write: (bytes) => writer.write(bytes),
    finish: async () => {
      await writer.close();
      setTimeout(() => folder.removeEntry(name).catch(() => {}), KEPT_MS);
      return handle.getFile();
    },
    discard: async () => {
      await writer.abort().catch(() => {});
      await folder.removeEntry(name).catch(() => {});
    },
  };
}

/** What pages left that were closed too soon; not what another tab is about to save. */
export async function removeOldFiles() {
  try {
    const folder = await navigator.storage.getDirectory();
    for await (const [name, handle] of folder.entries()) {
      const isOurs = name.startsWith(PREFIX);
      if (isOurs && Date.now() - (await handle.getFile()).lastModified > KEPT_MS) await folder.removeEntry(name);
    }
  } catch { /* there is no such folder, or another tab is about to remove the same */ }
}

function inBrowser() {
  let file = new Blob([]);
  let parts = [];
  let size = 0;
  const handOver = () => {
    file = new Blob([file, ...parts], { type: "application/x-ndjson" });
    parts = [];
    size = 0;
  };
  return {
    write: async (bytes) => {
      parts.push(bytes);
      size += bytes.length;
      if (size >= PART_BYTES) handOver();
    },
    finish: async () => {
      handOver();
      return file;
    },
    discard: async () => { file = null; },
  };
}
