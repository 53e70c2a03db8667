-- Says in AdminComment what a job runs, so that gangd keeps applications apart that harm each other
-- (pairing in gangd.toml), and keeps some from sharing cores at all. Lowers the memory that a job asks for to what
-- `osub predict memory` predicts of it, so that more jobs fit on a node.
--
-- An example: put it next to slurm.conf, set JobSubmitPlugins=lua, and write your own tables. It looks at the job's
-- name, which users choose; a site that must not believe it looks at the account, the partition or the script.
-- Whatever a user writes, only words of these tables reach AdminComment, and no job gets more memory than it asks
-- for. A job that nothing is known of goes on unchanged, and so does every job if something here fails.

-- Patterns (string.find) of job names, and the application as the table of pairs calls it.
local APPLICATIONS = {
  { "^lu[-_]", "lu.W" },
  { "^chase[-_]", "chase.2048K" },
  { "^stream[-_]", "stream.98304K" },
}

-- Applications that share cores with no job, where the partition leaves that to jobs (OverSubscribe=YES).
local ALONE = { ["chase.2048K"] = true }

-- What `osub predict memory LOG --out` wrote, in a folder that only root may write to: "/etc/slurm/memory.json".
-- nil: memory is what jobs ask for. It is read again once a minute.
local MEMORY = nil

-- A job with this word in its comment keeps the memory that it asks for.
local AS_ASKED = "osub-memory=off"

local function application_of(job_desc)
  local name = job_desc.name
  if name == nil then
    return nil
  end
  for _, entry in ipairs(APPLICATIONS) do
    if string.find(name, entry[1]) then
      return entry[2]
    end
  end
  return nil
end

local function key_of(user, app, asked_mib)
  return user .. "\n" .. (app and "=" .. app or "") .. "\n" .. (asked_mib and string.format("%d", asked_mib) or "")
end

-- Predictions (MiB a processor) by user, application and request, from the lines of the table: one `"key": value`
-- each, as osub writes it. A user of whom a row cannot be read keeps what he asks for in all jobs.
local function read_table(path)
  local found, spoilt, row, known = {}, {}, {}, false
  local file = assert(io.open(path, "r"))
  for line in file:lines() do
    local key, value = line:match('^%s*"([%l_]+)": (.-),?$')
    if key == "format" then
      known = value == '"osub-memory-1"'
    elseif key ~= nil then
      local text = value:match('^"([^"\\%c]*)"$')
      row[key] = text or tonumber(value)
      row.unread = row.unread or (row[key] == nil and value ~= "null" and value ~= "[")
    elseif line:match("^%s*{") then
      row = {}
    elseif line:match("^%s*},?$") and row.user ~= nil then
      if row.unread or type(row.user) ~= "string" or type(row.mib) ~= "number" or row.mib < 1 then
        spoilt[tostring(row.user)] = true
      else
        found[key_of(row.user, row.app, row.requested_mib)] = row.mib
      end
      row = {}
    end
  end
  file:close()
  assert(known, "no table of osub predict memory")
  return found, spoilt
end

local predicted, kept, read_s = {}, {}, nil

local function predictions()
  if read_s == nil or os.difftime(os.time(), read_s) >= 60 or os.difftime(os.time(), read_s) < 0 then
    read_s = os.time()
    local ok, found, spoilt = pcall(read_table, MEMORY)
    if ok then
      predicted, kept = found, spoilt
    else
      slurm.log_info("job_submit: memory stays as it was known: %s", tostring(found))
    end
  end
  return predicted, kept
end

-- A number of a job's description; nil where it is not given (Slurm's NO_VAL and INFINITE of 16 and 32 bits).
local function given(number)
  if type(number) ~= "number" or number < 1 or number == 65534 or number == 65535 or number >= 4294967294 then
    return nil
  end
  return number
end

local function lower_memory(job_desc)
  if string.find(job_desc.comment or "", AS_ASKED, 1, true) then
    return
  end
  local each, whole = given(job_desc.min_mem_per_cpu), given(job_desc.min_mem_per_node)
  local nodes = given(job_desc.min_nodes)
  local procs = (given(job_desc.num_tasks) or nodes or 1) * (given(job_desc.cpus_per_task) or 1)
  procs = math.max(procs, given(job_desc.min_cpus) or 1)
  if each == nil then
    if whole == nil or (nodes or 1) > procs or (procs > 1 and nodes == nil) then
      return -- it takes all memory or the partition's default, or Slurm chooses on how many nodes its tasks are
    end
    each = math.ceil(whole * (nodes or 1) / procs)
  end
  local found, unread = predictions()
  local user, app = job_desc.user_name, job_desc.name
  if user == nil or unread[user] then
    return
  end
  local mib = found[key_of(user, app, each)] or found[key_of(user, nil, each)] or found[key_of(user)]
  if mib == nil or mib >= each then
    return
  end
  if whole == nil then
    job_desc.min_mem_per_cpu = mib
  else
    job_desc.min_mem_per_node = math.min(whole, mib * math.ceil(procs / (nodes or 1)))
  end
  slurm.log_info("job_submit: %d of %d MiB a processor for a job of %s", mib, each, user)
end

function slurm_job_submit(job_desc, part_list, submit_uid)
  local ok, application = pcall(application_of, job_desc)
  if ok and application ~= nil then
    job_desc.admin_comment = "gangd-app=" .. application
    if ALONE[application] then
      job_desc.shared = 0
    end
  end
  if MEMORY ~= nil then
    pcall(lower_memory, job_desc)
  end
  return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return slurm.SUCCESS
end

return slurm.SUCCESS
