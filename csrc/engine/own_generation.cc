#include "engine/own_generation.h"

namespace ringdist {

void OwnGeneration::begin(Context& context, const CommunicatorOptions& options,
                          const FoundGroup& found, std::weak_ptr<GenerationGroup> group) {
  std::lock_guard lock(mutex_);
  has_none_ = !Succession::can_have(found);
  if (succession_ || left_ || has_none_) return;
  succession_ = std::make_shared<Succession>(context, options, found, std::move(group));
  succession_->enroll();  // with the lock: leave() comes after it
}

void OwnGeneration::leave() {
  std::shared_ptr<Succession> own;
  {
    std::lock_guard lock(mutex_);
    left_ = true;
    own = succession_;
  }
  if (own) own->leave(number_);
}

bool OwnGeneration::succeeded() const {
  std::lock_guard lock(mutex_);
  return succession_ && succession_->last_made() > number_;
}

Result<Shrunk> OwnGeneration::next(TimePoint deadline, const Succession::MakeNext& make) {
  std::shared_ptr<Succession> own;
  {
    std::lock_guard lock(mutex_);
    if (left_) return Error(ErrorKind::kAborted, "it has been destroyed");
    if (in_next_) return Error(ErrorKind::kInvalidArgument, "another thread shrinks it");
    if (has_none_)
      return Error(ErrorKind::kNotSupported, "several of its ranks are in one process");
    if (!succession_)
      return Error(ErrorKind::kInvalidArgument,
                   "it has not found its members yet: nobody can be lost");
    in_next_ = true;
    own = succession_;
  }
  struct End {
    ~End() {
      std::lock_guard lock(it.mutex_);
      it.in_next_ = false;
    }
    OwnGeneration& it;
  } const end{*this};
  return own->next(number_, deadline, make);
}

}  // namespace ringdist
