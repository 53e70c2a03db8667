-- Says in AdminComment what a job runs, so that gangd keeps applications apart that harm each other
-- (pairing in gangd.toml), and keeps some from sharing cores at all.
--
-- An example: put it next to slurm.conf, set JobSubmitPlugins=lua, and write your own tables. It looks at the job's
-- name, which users choose; a site that must not believe it looks at the account, the partition or the script.
-- Whatever a user writes, only words of these tables reach AdminComment. A job that nothing is known of goes on
-- unchanged, and so does every job if something here fails.

-- Patterns (string.find) of job names, and the application as the table of pairs calls it.
local APPLICATIONS = {
  { "^lu[-_]", "lu.W" },
  { "^chase[-_]", "chase.2048K" },
  { "^stream[-_]", "stream.98304K" },
}

-- Applications that share cores with no job, where the partition leaves that to jobs (OverSubscribe=YES).
local ALONE = { ["chase.2048K"] = true }

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

function slurm_job_submit(job_desc, part_list, submit_uid)
  local ok, application = pcall(application_of, job_desc)
  if ok and application ~= nil then
    job_desc.admin_comment = "gangd-app=" .. application
    if ALONE[application] then
      job_desc.shared = 0
    end
  end
  return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return slurm.SUCCESS
end

return slurm.SUCCESS
